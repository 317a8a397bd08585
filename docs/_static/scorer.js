// Weights of the search: titles of pages first, then their text, names of the reference last.
// Guides come before developers' pages.
var Scorer = {
  score: ([docname, title, anchor, description, score]) => {
    if (/^howto\/(does|coming|extend)/.test(docname)) return score;
    if (/^(tutorials|howto)\//.test(docname)) return score + 12;
    if (/^(reference|architecture|decisions|changelog|contributing)/.test(docname)) return Math.min(score - 6, 9);
    return score;
  },
  objNameMatch: 4,
  objPartialMatch: 1,
  objPrio: { 0: 2, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
