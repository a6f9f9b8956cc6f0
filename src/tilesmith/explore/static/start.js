// The page: its parts from top to bottom.

function header() {
  const views = data.views.map((view, index) => el("p", { class: "config" },
    el("b", {}, viewName(index) ? `${viewName(index)} · ${view.label} ` : `${view.label} config `), el("code", {}, view.config)));
  const links = [["code", "Code"], ["tiles", "Tiles"], ["costs", "Time"], ["alternatives", "Alternatives"], ["facts", "Facts"]];
  return el("header", {},
    el("h1", {}, data.kernel, el("span", { class: "soft" }, ` on ${data.target}`)),
    el("p", {}, el("code", {}, data.arguments)), views,
    el("nav", {}, links.map(([id, text]) => el("a", { href: `#${id}` }, text))));
}

document.body.append(header(), codeSection(), tilesSection(), costsSection(), alternativesSection(),
  section("facts", "Facts", el("pre", {}, data.facts)));
document.body.dataset.ready = Math.round(performance.now());
