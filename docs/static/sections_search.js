/* Finds sections by a question as people ask it: Sphinx's own search wants every word on a page, and names the page. */
"use strict";

{
  const SHOWN = 12;
  const IN_HEADING = 3, IN_PAGE_TITLE = 1, IN_TEXT = 1;
  const HOW_TO = 1.2; // short answers are what is asked for most
  const LEAST = 0.25; // of what the words of a question weigh: a section that says less is no answer

  const stems = new Map();
  const stemmer = new Stemmer();

  function stem(word) {
    if (!stems.has(word)) stems.set(word, stemmer.stemWord(word));
    return stems.get(word);
  }

  function words(text) {
    const parted = text.replace(/\w+_\w+/g, (name) => `${name} ${name.replaceAll("_", " ")}`); // n_trials: trials, too
    const said = splitQuery(parted.toLowerCase().replaceAll("w&b", "wandb"));
    return said.filter((word) => word.length > 1 && !stopwords.has(word)).map(stem);
  }

  /* SECTIONS is written beside this file by docs/made/sections.py. */
  const sections = SECTIONS.map(([page, file, anchor, pageTitle, title, also, text]) => ({
    page, file, anchor, pageTitle, title,
    heading: new Set([...words(title), ...words(also)]),
    above: new Set(words(pageTitle)),
    text: new Set(words(text)),
  }));

  const found = new Map();
  for (const { heading, above, text } of sections)
    for (const word of new Set([...heading, ...above, ...text])) found.set(word, (found.get(word) ?? 0) + 1);

  /* The rarer a word, the more it says (Spärck Jones 1972). */
  const weight = (word) => Math.log(1 + sections.length / (1 + (found.get(word) ?? 0)));

  function scored(section, asked) {
    const length = 1 + Math.log(1 + section.text.size / 100);
    let score = 0, said = 0, all = 0;
    for (const word of asked) {
      all += weight(word);
      const places = [
        section.heading.has(word) ? IN_HEADING : 0,
        section.above.has(word) ? IN_PAGE_TITLE : 0,
        section.text.has(word) ? IN_TEXT / length : 0,
      ];
      score += weight(word) * Math.max(...places);
      if (Math.max(...places) > 0) said += weight(word);
    }
    if (section.page.startsWith("how-to/")) score *= HOW_TO;
    return said >= LEAST * all ? score / all : 0;
  }

  function answers(query) {
    const asked = new Set(words(query).filter((word) => found.has(word)));
    return sections
      .map((section) => [scored(section, asked), section])
      .filter(([score]) => score > 0)
      .sort(([one], [other]) => one - other)
      .slice(-SHOWN)
      .map(([score, { page, file, anchor, pageTitle, title }]) => [
        page, title === pageTitle ? title : `${pageTitle} > ${title}`, anchor && `#${anchor}`, null, score, file, "title",
      ]);
  }

  /* Results are shown from the last on. A name of the packages comes before all. */
  const ofSphinx = Search._performSearch;
  Search._performSearch = (query, ...terms) => {
    const name = query.trim().toLowerCase().replace(/^tune\./, "tuner.").replace(/^train\./, "trainables.");
    const isNamed = ([, title, , , , , kind]) => kind === "object" && `.${title.toLowerCase()}`.endsWith(`.${name}`);
    const sections = answers(query), known = new Set(sections.map(([page, , anchor]) => page + anchor));
    const others = ofSphinx(query, ...terms).filter(([page, , anchor]) => !known.has(page + anchor));
    return [...others.filter((each) => !isNamed(each)), ...sections, ...others.filter(isNamed)];
  };
}
