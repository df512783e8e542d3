// What leaves the page: the table that `showtell train` reads, and JSON lines. With corrections on the server it writes both.

const exporting = (() => {
  const COLUMNS = ["image", "caption", "confidence", "split"]; // CORRECTIONS of datasets/table.py
  const FORMULA = /^'*[=+\-@\t\r]/; // what spreadsheets compute; `as_text_cell` of datasets/table.py

  const textCell = (text) => (FORMULA.test(text) ? `'${text}` : text);
  const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const isChecked = (row) => ["accepted", "corrected"].includes(row.status);

  /** Names without the folder that all photos are in: the table stands in that folder. */
  function names(rows) {
    const [first] = rows[0]?.name.split("/") ?? [];
    const folder = rows.every((row) => row.name.startsWith(`${first}/`)) ? `${first}/` : "";
    return { folder, nameOf: (row) => row.name.slice(folder.length) };
  }

  function csv(rows) {
    const { nameOf } = names(rows);
    const lines = rows.filter((row) => row.captions.length || row.text).map((row) => [
      textCell(nameOf(row)),
      textCell(row.text ?? row.captions[0].text),
      row.captions[0]?.confidence.toFixed(3) ?? "",
      isChecked(row) ? "train" : "unchecked",
    ]);
    return `\ufeff${[COLUMNS, ...lines].map((cells) => `${cells.map(quoted).join(",")}\n`).join("")}`;
  }

  function jsonl(rows) {
    const { nameOf } = names(rows);
    return rows.map((row) => {
      const result = row.error ? { error: row.error } : { captions: row.captions };
      const decision = { status: row.status, caption: row.text };
      return `${JSON.stringify({ image: nameOf(row), ...result, ...decision })}\n`;
    }).join("");
  }

  /** Let the browser save something as a file. */
  function save(content, name) {
    const link = explanations.element("a");
    link.href = content instanceof Blob ? URL.createObjectURL(content) : content;
    link.download = name;
    link.click();
    if (content instanceof Blob) setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  return { csv, jsonl, names, save, isChecked };
})();
