// Columns of code. Lines that come from the same place of the source light up together.

const columns = [];
let pinned = null;
let cursor = null;

class CodeColumn {
  constructor(kind, title, view, texts) {
    Object.assign(this, { kind, title, view, texts, chosen: 0 });
    this.number = columns.length;
    columns.push(this);
    this.count = el("span", { class: "count" });
    this.lines = el("div", {
      class: "lines", tabindex: 0, role: "listbox", "aria-label": this.name, "data-column": this.number,
    });
    this.node = el("div", { class: `column ${kind}`, "data-kind": kind },
      el("div", { class: "head" }, el("b", {}, this.name), this.count, ...this.controls()), this.lines);
    this.show(texts.length - 1 && kind !== "ir" ? 0 : texts.length - 1);
  }

  get name() {
    return this.view == null || data.views.length < 2 ? this.title : `${this.title} · ${viewName(this.view)}`;
  }

  get text() {
    return this.texts[this.chosen];
  }

  controls() {
    if (this.texts.length < 2) return [];
    if (this.kind === "ir") {
      this.slider = el("input", {
        type: "range", min: 0, max: this.texts.length - 1, value: this.texts.length - 1,
        "aria-label": `stage of ${this.name}`, oninput: () => this.show(Number(this.slider.value)),
      });
      this.label = el("div", { class: "pass" });
      return [this.slider, this.label];
    }
    const choices = this.texts.map((text, i) => el("option", { value: i }, text.title));
    return [el("select", {
      "aria-label": `form of ${this.title}`, onchange: (event) => this.show(Number(event.target.value)),
    }, ...choices)];
  }

  show(chosen) {
    this.chosen = chosen;
    const { text, places, labels } = this.text;
    const before = this.kind === "ir" && chosen ? new Set(this.texts[chosen - 1].text.split("\n")) : null;
    this.rows = text.split("\n");
    this.lines.innerHTML = this.rows.map((line, i) => {
      const number = labels ? labels[i].split(":").pop() : i + 1;
      const kinds = [places[i] < 0 ? "line" : "line linked", before && !before.has(line) ? "new" : ""];
      const id = `l${this.number}-${i}`;
      return `<div class="${kinds.join(" ").trim()}" role="option" id="${id}" data-i="${i}">` +
        `<i>${number}</i><code>${coloured(line)}</code></div>`;
    }).join("");
    if (this.label) {
      const { stage, name, reason } = this.text;
      this.label.replaceChildren(el("b", {}, `${stage}: ${name}`), el("span", {}, ` ${reason}`));
    }
    light(pinned || cursor);
  }

  line(i) {
    return this.lines.children[i];
  }
}

// Comments, strings and numbers get a colour of their own; nothing else needs one.
const TOKENS = /(#.*$|\/\/.*$|;;.*$)|("[^"\n]*"|'[^'\n]*')|(%[\w.$]+)|\b(\d[\w.]*)\b/g;

function coloured(line) {
  let made = "";
  let last = 0;
  for (const found of line.matchAll(TOKENS)) {
    const kind = found[1] ? "c" : found[2] ? "s" : found[3] ? "v" : "n";
    made += `${escaped(line.slice(last, found.index))}<span class="${kind}">${escaped(found[0])}</span>`;
    last = found.index + found[0].length;
  }
  return made + escaped(line.slice(last));
}

// Places that belong to a line: of the user's line all that contain it, else exactly its own.
function placesOf(column, i) {
  const own = column.text.places[i];
  if (own < 0) return new Set();
  if (column.kind !== "source") return new Set([own]);
  const found = data.places.flatMap((rows, place) => (rows.includes(i) ? [place] : []));
  return new Set(found);
}

function light(at) {
  for (const line of document.querySelectorAll(".line.lit, .line.hit, .line.at")) {
    line.classList.remove("lit", "hit", "at");
  }
  for (const column of columns) column.count.textContent = "";
  for (const badge of document.querySelectorAll(".chips sup")) badge.textContent = "";
  if (!at || !at.column.line(at.i)) return;
  const { column, i } = at;
  column.line(i).classList.add("at");
  column.lines.setAttribute("aria-activedescendant", `l${column.number}-${i}`);
  const places = placesOf(column, i);
  const rows = new Set([...places].flatMap((place) => data.places[place]));
  for (const other of columns) {
    let count = 0;
    const isSource = other.kind === "source";
    for (let j = 0; j < other.rows.length; j++) {
      const isLit = isSource && column.kind !== "source" ? rows.has(j) : places.has(other.text.places[j]);
      if (isLit && !(isSource && column.kind === "source" && j !== i)) {
        other.line(j).classList.add("lit");
        count += 1;
      }
    }
    if (other === column || !count) continue;
    other.count.textContent = `${count} line${count > 1 ? "s" : ""}`;
    if (other.node.hidden) document.querySelector(`.chips [data-kind="${other.kind}"] sup`).textContent = count;
  }
  lightExactly(column, i);
}

// Machine code knows the very line of emitted code that it comes from.
function lightExactly(column, i) {
  for (const other of columns) {
    if (other === column || other.view !== column.view) continue;
    const emitted = column.text.emitted;
    if (emitted && other.kind === "emitted" && emitted[i] >= 0) other.line(emitted[i]).classList.add("hit");
    if (column.kind === "emitted" && other.text.emitted) {
      other.text.emitted.forEach((from, j) => from === i && other.line(j).classList.add("hit"));
    }
  }
}

function bringIntoView(except) {
  for (const column of columns) {
    if (column === except) continue;
    const line = column.lines.querySelector(".hit") || column.lines.querySelector(".lit");
    if (!line) continue;
    const box = column.lines.getBoundingClientRect();
    column.lines.scrollTop += line.getBoundingClientRect().top - box.top - box.height / 3;
  }
}

function lineAt(target) {
  const line = target.closest && target.closest(".line");
  if (!line) return null;
  return { column: columns[line.parentNode.dataset.column], i: Number(line.dataset.i) };
}

function pin(at) {
  const isSame = pinned && at && pinned.column === at.column && pinned.i === at.i;
  pinned = isSame ? null : at;
  cursor = at;
  document.body.classList.toggle("pinned", Boolean(pinned));
  light(pinned || cursor);
  if (pinned) bringIntoView(pinned.column);
}

function moveCursor(column, i) {
  const last = column.rows.length - 1;
  cursor = { column, i: Math.max(0, Math.min(last, i)) };
  pinned = null;
  light(cursor);
  column.line(cursor.i).scrollIntoView({ block: "nearest" });
  bringIntoView(column);
}

function onKey(event) {
  const number = event.target.dataset && event.target.dataset.column;
  if (number === undefined) return;
  const column = columns[number];
  const i = cursor && cursor.column === column ? cursor.i : -1;
  const shown = columns.filter((other) => !other.node.hidden);
  const beside = (by) => shown[shown.indexOf(column) + by];
  const actions = {
    ArrowDown: () => moveCursor(column, i + 1),
    ArrowUp: () => moveCursor(column, i - 1),
    PageDown: () => moveCursor(column, i + 20),
    PageUp: () => moveCursor(column, i - 20),
    Home: () => moveCursor(column, 0),
    End: () => moveCursor(column, column.rows.length - 1),
    Enter: () => cursor && pin(cursor),
    " ": () => cursor && pin(cursor),
    Escape: () => { cursor = null; pin(null); },
    ArrowRight: () => beside(1) && beside(1).lines.focus(),
    ArrowLeft: () => beside(-1) && beside(-1).lines.focus(),
  };
  if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  actions[event.key]();
  event.preventDefault();
}

function makeColumns() {
  columns.length = 0;
  pinned = cursor = null;
  document.body.classList.remove("pinned");
  new CodeColumn("source", "your source", null, [data.source]);
  for (const kind of ["ir", "schedule", "emitted", "machine"]) {
    data.views.forEach((view, index) => {
      const texts = { ir: view.stages, schedule: [view.schedule], emitted: [view.emitted], machine: view.machine }[kind];
      const title = { ir: "IR", schedule: "loop nest", emitted: view.emitted.title, machine: "machine code" }[kind];
      const name = texts.length === 1 && kind === "machine" ? texts[0].title : title;
      if (texts.length) new CodeColumn(kind, name, index, texts);
    });
  }
}

// Which columns are wanted at first: as many as fit.
function firstKinds() {
  if (isNarrow()) return ["source"];
  if (data.views.length > 1) return ["source", "schedule", "emitted"];
  if (window.innerWidth < 1000) return ["source", "emitted"];
  if (window.innerWidth < 1250) return ["source", "ir", "emitted"];
  return ["source", "ir", ...(window.innerWidth < 1560 ? [] : ["schedule"]), "emitted", "machine"];
}

function codeSection() {
  makeColumns();
  let shown = new Set(firstKinds());
  const kinds = [...new Set(columns.map((column) => column.kind))];
  const buttons = kinds.map((kind) => el("button", {
    type: "button", "data-kind": kind, onclick: () => {
      if (isNarrow()) shown = new Set([kind]);
      else if (!shown.delete(kind)) shown.add(kind);
      update();
    },
  }, columns.find((column) => column.kind === kind).title, el("sup", {})));
  const update = () => {
    for (const column of columns) column.node.hidden = !shown.has(column.kind);
    for (const button of buttons) button.setAttribute("aria-pressed", shown.has(button.dataset.kind));
    light(pinned || cursor);
  };
  const box = el("div", { class: "columns", onkeydown: onKey, onmouseover: (event) => {
    const at = lineAt(event.target);
    if (at && !pinned) light((cursor = at));
  }, onclick: (event) => {
    const at = lineAt(event.target);
    if (at && !String(window.getSelection())) pin(at);
  } }, columns.map((column) => column.node));
  update();
  window.matchMedia("(max-width: 760px)").addEventListener("change", () => { shown = new Set(firstKinds()); update(); });
  return section("code", "From source to machine code",
    el("div", { class: "chips", role: "group", "aria-label": "columns" }, buttons),
    el("p", { class: "soft hint" }, "Point at a line: what comes from the same place lights up. Click or Enter keeps it, Esc lets go; arrow keys move."),
    box);
}
