// Times: what the model expects and why, the roofline, resources, and what other configs would cost.

const PARTS = [["compute_ms", "compute"], ["memory_ms", "memory"], ["latency_ms", "latency"]];

function costsSection() {
  return section("costs", "Time and resources",
    el("div", { class: "beside" }, data.views.map(costs)), roofline(), el("div", { class: "beside" }, data.views.map(resources)));
}

function costs(view, index) {
  const { predicted, measured_ms: measured, roofline_ms: least, reason } = view.costs;
  const lines = PARTS.map(([name, words]) => [words, predicted[name], "part"]);
  lines.push(["predicted", predicted.total_ms, "total"]);
  if (measured) lines.push(["measured", measured, "measured"]);
  if (least) lines.push(["roofline", least, "least"]);
  const most = Math.max(...lines.map(([, ms]) => ms)) || 1;
  const rows = lines.map(([words, ms, kind]) => el("div", { class: "bars" }, el("span", {}, words),
    el("span", { class: "track", title: `${words}: ${msText(ms)}` }, el("span", { class: `fill ${kind}`, style: `width:${(100 * ms) / most}%` })),
    el("b", {}, msText(ms))));
  const name = viewName(index);
  return el("div", {}, name ? el("h3", {}, `Config ${name}`) : "",
    el("p", {}, el("code", {}, view.paste)), el("p", {}, `Chosen because: ${reason}. Limited by ${predicted.limiter}.`), rows,
    el("p", { class: "soft" }, "Parts overlap: the time is near the largest of them, not their sum."));
}

function resources(view, index) {
  const { resources: use, predicted } = view.costs;
  const { built } = view;
  const shared = (count) => (count == null ? "-" : bytesText(count));
  const rows = [
    ["registers of a thread", use.registers ?? "-", built.registers ?? "-", use.register_limit ?? "-"],
    ["shared memory", shared(use.shared_bytes), shared(built.shared_bytes), shared(use.shared_limit)],
    ["spilled", "-", shared(built.spilled_bytes), "-"],
  ].filter((row) => row.slice(1, 3).some((text) => text !== "-"));
  const name = viewName(index);
  const facts = [`${digits(predicted.waves)} wave${predicted.waves === 1 ? "" : "s"} of programs`];
  if (use.register_limit) facts.push(`${digits(predicted.occupancy)} at a time on a multiprocessor`);
  const table = rows.length ? el("table", { class: "facts" }, el("tr", {}, ["", "expected", "as built", "limit"].map((text, i) => el("th", { class: i ? "number" : "" }, text))),
    rows.map((row) => el("tr", {}, row.map((text, i) => el("td", { class: i ? "number" : "" }, String(text)))))) : "";
  return el("div", {}, name ? el("h3", {}, `Config ${name}`) : "", el("p", {}, `${facts.join(", ")}.`),
    built.notes.map((text) => el("p", { class: "soft" }, text)), el("div", { class: "wide" }, table));
}

function roofline() {
  const { bytes, operations, memory_rate: memory, roofs, device } = data.limits;
  if (!bytes || !operations) return "";
  // Rates are per nanosecond.
  const intensity = operations / bytes;
  const points = data.views.flatMap((view, index) => {
    const name = viewName(index) ? ` ${viewName(index)}` : "";
    const made = [["predicted", view.costs.predicted.total_ms], ["measured", view.costs.measured_ms]];
    return made.filter(([, ms]) => ms).map(([kind, ms]) => ({ kind, name: kind + name, rate: operations / ms / 1e6 }));
  });
  const tops = Object.values(roofs);
  const peak = Math.max(...tops);
  const corner = peak / memory;
  const [left, right] = [Math.min(intensity, corner) / 8, Math.max(intensity, corner) * 8];
  const bottom = Math.min(...points.map(({ rate }) => rate), left * memory) / 2;
  const [width, height, margin] = [640, 300, { left: 64, right: 16, top: 22, bottom: 40 }];
  const share = (value, low, high) => Math.log(value / low) / Math.log(high / low);
  const x = (value) => margin.left + (width - margin.left - margin.right) * share(value, left, right);
  const y = (value) => height - margin.bottom - (height - margin.top - margin.bottom) * share(value, bottom, peak * 2);
  const marks = [];
  for (let power = Math.ceil(Math.log10(left)); 10 ** power < right; power++) {
    marks.push(svg("line", { class: "grid", x1: x(10 ** power), x2: x(10 ** power), y1: margin.top, y2: height - margin.bottom }),
      svg("text", { x: x(10 ** power), y: height - margin.bottom + 15, "text-anchor": "middle" }, digits(10 ** power)));
  }
  for (let power = Math.ceil(Math.log10(bottom)); 10 ** power < peak * 2; power++) {
    marks.push(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(10 ** power), y2: y(10 ** power) }),
      svg("text", { x: margin.left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, rateText(10 ** power * 1e9, "")));
  }
  const roof = Object.entries(roofs).flatMap(([name, rate]) => [
    svg("line", { class: "roof", x1: x(rate / memory), x2: x(right), y1: y(rate), y2: y(rate) }),
    svg("text", { class: "rooftext", x: x(right) - 4, y: y(rate) - 5, "text-anchor": "end" }, `${name}: ${rateText(rate * 1e9, "op/s")}`)]);
  const slope = svg("line", { class: "roof", x1: x(left), x2: x(corner), y1: y(left * memory), y2: y(peak) });
  const drawn = points.map(({ kind, name, rate }, i) => svg("g", { class: `point ${kind}` },
    svg("circle", { cx: x(intensity), cy: y(rate), r: 5 }),
    svg("text", { x: x(intensity) + (i % 2 ? -9 : 9), y: y(rate) + 4, "text-anchor": i % 2 ? "end" : "start" }, name),
    svg("title", {}, `${name}: ${rateText(rate * 1e9, "op/s")}`)));
  const middle = Math.sqrt(left * corner);
  const memoryText = svg("text", { class: "rooftext", x: x(middle) + 10, y: y(middle * memory) + 14 }, `memory: ${rateText(memory * 1e9, "B/s")}`);
  return el("figure", { class: "chart" }, el("figcaption", {}, `Roofline of ${device}: operations for each byte that has to move, and operations each second`),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline" }, marks, slope, roof, memoryText, drawn,
      svg("text", { x: (width + margin.left) / 2, y: height - 6, "text-anchor": "middle" }, "operations for each byte")));
}

function alternativesSection() {
  return section("alternatives", "Why this config, and what others would cost",
    el("div", { class: "beside" }, data.views.map((view, index) => nearest(view, index))),
    el("h3", {}, "Best without a search"),
    el("p", { class: "soft" }, "What was measured on a device comes first, whatever the model says; the model orders the rest."), ranked());
}

function nearest(view, index) {
  const now = view.costs.predicted.total_ms;
  const rows = view.costs.neighbours.map((item) => {
    const share = item.ms == null ? 0 : item.ms / now - 1;
    const change = item.ms == null ? "" : Math.abs(share) < 0.005 ? "same" : `${share > 0 ? "+" : "−"}${percent(Math.abs(share))}`;
    return el("tr", { "data-ms": item.ms ?? 1e99 },
      el("td", {}, el("code", {}, item.key)), el("td", { class: "value" }, el("code", {}, `${item.from} → ${item.to}`)),
      el("td", { class: "number" }, item.ms == null ? "-" : msText(item.ms)),
      el("td", { class: "number" }, change), el("td", { class: "soft" }, item.problem));
  });
  const body = el("tbody", {}, rows);
  const filter = el("input", { type: "search", placeholder: "filter keys", "aria-label": "filter keys", oninput: () => {
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase());
  } });
  const heads = ["entry", "from → to", "predicted", "against now", ""];
  const name = viewName(index);
  return el("div", {}, el("h3", {}, `One step away${name ? ` from ${name}` : ""}`), rows.length ? filter : "",
    rows.length ? el("div", { class: "wide tall" }, el("table", {}, el("thead", {}, el("tr", {}, heads.map((text, i) => el("th", { class: i > 1 && i < 4 ? "number" : "" }, text)))), body))
      : el("p", { class: "soft" }, "This kernel has no entry that could be changed."));
}

function ranked() {
  const rows = data.ranked.map(({ config, reason, predicted }) => el("tr", {},
    el("td", { class: "number" }, msText(predicted.total_ms)), el("td", {}, reason), el("td", { class: "config" }, el("code", {}, config))));
  return el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { class: "number" }, "predicted"), el("th", {}, "why"), el("th", {}, "config"))), el("tbody", {}, rows)));
}
