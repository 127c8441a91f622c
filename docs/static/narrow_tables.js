// On a phone the cells of a row stand below one another, without the head of the table: each then says what it is.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, column) => {
        if (column > 0 && names[column] && cell.textContent.trim()) cell.dataset.column = names[column];
      });
    }
  }
});
