// Everything with text of its own whose contrast with what lies behind it is below 4.5.
() => {
  const context = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
  const over = (below, colour) => {
    context.fillStyle = `rgb(${below})`; context.fillRect(0, 0, 1, 1);
    context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const light = (rgb) => rgb.map((c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const bad = [];
  for (const element of document.body.querySelectorAll('*')) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) || !element.checkVisibility() || element.disabled || element.tagName === 'NOSCRIPT') continue;
    const above = [];
    for (let at = element; at; at = at.parentElement) above.unshift(getComputedStyle(at).backgroundColor);
    const back = above.reduce(over, [255, 255, 255]);
    const [a, b] = [light(over(back, getComputedStyle(element).color)), light(back)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push([element.textContent.slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return bad;
}
