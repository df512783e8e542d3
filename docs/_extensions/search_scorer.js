// The order of what a search finds: pages about the words before pages that mention them, and logs, designs and source
// last. Sphinx gives 5 to a page with the words, 15 where one is in a heading; equal scores are sorted by title.
var Scorer = {
  score: ([page, title, , , score, , kind]) => {
    const query = new URLSearchParams(location.search).get("q").trim();
    if (kind === "object") return /[A-Z_]/.test(query) && `.${title}`.endsWith(`.${query}`) ? 100 : score;
    if (/^(changelog|contributing|design|source\/|notebooks\/)/.test(page)) return score - 100;
    const stemmer = new Stemmer();
    const words = splitQuery(query.toLowerCase()).map((word) => stemmer.stemWord(word));
    const share = (text) => words.filter((word) => text.toLowerCase().includes(word)).length / words.length;
    const file = Search._index.docnames.indexOf(page);
    const headings = Object.entries(Search._index.alltitles).filter(([, targets]) => targets.some(([one]) => one === file));
    const explained = page === "glossary" ? 11 : 0; // a word is explained behind the page that uses it
    return score - explained + 10 * share(title) + 10 * Math.max(...headings.map(([heading]) => share(heading)));
  },
  objNameMatch: 10,
  objPartialMatch: 5,
  objPrio: { 0: 2, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
