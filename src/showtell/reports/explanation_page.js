// The written page of explanations: sorts and filters its photos, and opens their cards; it loads nothing.
(() => {
  function sort(header) {
    const table = header.closest("table");
    const column = [...header.parentElement.children].indexOf(header);
    const descending = header.getAttribute("aria-sort") === "ascending";
    const key = (body) => Number.parseFloat(body.rows[0].cells[column].dataset.value ?? "NaN");
    const bodies = [...table.tBodies].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // those without a score last
      return descending ? b - a : a - b;
    });
    for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    for (const body of bodies) {
      table.append(body);
      const article = document.getElementById(body.dataset.photo);
      article.parentElement.append(article);
    }
  }

  /** Show the photos alone whose rows have all words of a text. */
  function filter(text) {
    const words = text.toLowerCase().split(/\s+/);
    const bodies = [...document.querySelectorAll(".overview tbody")];
    for (const body of bodies) {
      const row = body.textContent.toLowerCase();
      body.hidden = !words.every((word) => row.includes(word));
      document.getElementById(body.dataset.photo).hidden = body.hidden;
    }
    const shown = bodies.filter((body) => !body.hidden).length;
    document.querySelector(".bar [role='status']").textContent = text ? `${shown} of ${bodies.length} photos` : "";
  }

  document.addEventListener("input", ({ target }) => {
    if (target.matches(".filter")) filter(target.value.trim());
  });

  document.addEventListener("click", ({ target }) => {
    const header = target.closest("th");
    if (header && target.closest("button")) sort(header);
  });

  for (const body of document.querySelectorAll(".overview tbody"))
    body.querySelector(".picture img").src = document.querySelector(`#${body.dataset.photo} .frame img`).src;

  // In a notebook the page is in a frame, which it makes as high as itself.
  if (window.frameElement)
    new ResizeObserver(() => {
      window.frameElement.style.height = `${document.documentElement.offsetHeight + 4}px`;
    }).observe(document.documentElement);

  const articles = [...document.querySelectorAll("article.photo")];
  Promise.all(articles.map((article) => explanations.openArticle(article))).then(() => {
    document.documentElement.dataset.ready = "true";
  });
})();
