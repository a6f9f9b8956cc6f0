// The page: its parts from top to bottom.

function header() {
  const views = data.views.map((view, index) => el("p", { class: "config" },
    el("b", {}, viewName(index) ? `${viewName(index)} · ${view.label} ` : `${view.label} config `), el("code", {}, view.config)));
  const links = [["code", "Code"], ["tiles", "Tiles"], ["costs", "Time"], ["alternatives", "Alternatives"], ["facts", "Facts"]];
  return el("header", {},
    el("h1", {}, data.kernel, el("span", { class: "soft" }, ` on ${data.target}`)), launchPicker(),
    el("p", {}, el("code", {}, data.arguments)), views,
    el("nav", {}, links.map(([id, text]) => el("a", { href: `#${id}` }, text))));
}

function launchPicker() {
  if (launches.length < 2) return "";
  const buttons = launches.map((launch, i) => el("button", {
    type: "button", "aria-pressed": String(launch === data), onclick: () => show(i),
  }, `launch ${i + 1} of ${launches.length}`));
  return el("div", { class: "chips launches", role: "group", "aria-label": "launches" }, buttons);
}

const page = el("main", {});

function show(number) {
  data = launches[number];
  page.replaceChildren(header(), codeSection(), tilesSection(), costsSection(), alternativesSection(),
    section("facts", "Facts", el("pre", { class: "facts" }, data.facts)));
}

document.body.append(page);
show(0);
document.body.dataset.ready = Math.round(performance.now());
