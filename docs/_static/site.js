// What scrolls by itself can be reached by keyboard: code, tables and equations that are wider than the page.
addEventListener("load", () => {
  for (const part of document.querySelectorAll("pre, table.docutils, .math-block, .terminal")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
});
