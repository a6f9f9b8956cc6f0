"use strict";
// Tables of reports: a click on a heading sorts, words in the field above leave the rows that have them.

function sortBy(table, column, head) {
  const isDown = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
  const value = (row) => {
    const text = row.cells[column] ? row.cells[column].textContent.trim() : "";
    const number = parseFloat(text.replace(/,/g, ""));
    return head.classList.contains("number") ? (Number.isNaN(number) ? Infinity : number) : text;
  };
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (isDown ? -1 : 1));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.querySelectorAll("thead th")].forEach((head, column) => {
    if (!head.textContent) return;
    head.tabIndex = 0;
    head.addEventListener("click", () => sortBy(table, column, head));
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sortBy(table, column, head);
    });
  });
}

for (const field of document.querySelectorAll("input.filter")) {
  const rows = field.nextElementSibling.querySelector("table").tBodies[0].rows;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
