// The picture of the tiles: which program touches which part of which tensor, step by step.

const PICTURE = 230;

function tilesSection() {
  const parts = data.views.map((view, index) => new Tiles(view.tiles, index));
  return section("tiles", "Tiles", el("div", { class: "beside" }, parts.map((part) => part.node)));
}

class Tiles {
  constructor(tiles, index) {
    this.tiles = tiles;
    const name = viewName(index);
    this.node = el("div", { class: "tiles" }, name ? el("h3", {}, `Config ${name}`) : "");
    if (tiles.problem) {
      this.node.append(el("p", { class: "soft" }, `No picture: ${tiles.problem}`));
      return;
    }
    if (!tiles.programs.length) {
      this.node.append(el("p", { class: "soft" }, "No program accesses a tensor."));
      return;
    }
    this.program = 0;
    this.step = 0;
    this.told = el("p", { class: "told", "aria-live": "polite" });
    this.bytes = el("p", { class: "told" });
    this.strip = svg("svg", { class: "strip", viewBox: "0 0 600 60", preserveAspectRatio: "none", role: "img",
      "aria-label": "bytes of every step", onclick: (event) => this.pickStep(event) });
    this.programs = this.slider("program", tiles.programs.length, (value) => this.goTo(value, 0));
    this.steps = this.slider("step", 1, (value) => this.goTo(this.program, value));
    this.play = el("button", { type: "button", onclick: () => this.toggle() }, "▶ play");
    this.pictures = tiles.tensors.map((tensor) => new TensorPicture(this, tensor));
    this.node.append(
      el("p", { class: "soft" }, this.summary()),
      el("div", { class: "controls" }, this.programs.node, this.steps.node, this.play),
      this.told, el("div", { class: "pictures" }, this.pictures.map((picture) => picture.node)),
      this.bytes, this.strip,
      el("p", { class: "legend" }, key("new"), "first touched", key("others"), "touched before by another program shown",
        key("own"), "touched before by this program"));
    this.goTo(0, 0);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  slider(name, count, change) {
    const input = el("input", { type: "range", min: 0, max: count - 1, value: 0, "aria-label": name,
      oninput: () => change(Number(input.value)) });
    const shown = el("output", {});
    return { input, shown, node: el("label", {}, `${name} `, input, shown) };
  }

  summary() {
    const { programs, grids } = this.tiles;
    const total = grids.reduce((sum, grid) => sum + grid.total, 0);
    const asked = sum(programs, (program) => sum(program.steps, ([, bytes]) => bytes[0]));
    const fresh = sum(programs, (program) => sum(program.steps, ([, bytes]) => bytes[2]));
    const which = programs.length === total ? `All ${total.toLocaleString("en")} programs`
      : `${programs.length} of ${total.toLocaleString("en")} programs (the first as they are launched, then some in between)`;
    const times = fresh ? `: each byte ${digits(asked / fresh)} times` : "";
    return `${which} ask for ${bytesText(asked)}, of which ${bytesText(fresh)} are distinct${times}. ` +
      "What is asked for again can come from a cache.";
  }

  goTo(program, step) {
    this.program = program;
    const { steps } = this.tiles.programs[program];
    this.step = Math.min(step, steps.length - 1);
    this.programs.input.value = program;
    this.steps.input.max = Math.max(0, steps.length - 1);
    this.steps.input.value = this.step;
    this.draw();
  }

  draw() {
    const program = this.tiles.programs[this.program];
    const grid = this.tiles.grids[program.grid];
    const place = program.starts.map((start, i) => `${grid.names[i]}=${start}`).join(", ");
    this.programs.shown.textContent = ` ${program.number} of ${grid.total.toLocaleString("en")}`;
    this.steps.shown.textContent = ` ${this.step + 1} of ${program.steps.length}`;
    const [at, bytes, boxes] = program.steps[this.step] || [[], [0, 0, 0], []];
    const verbs = [...new Set(boxes.map(([access]) => `${this.tiles.accesses[access].kind} ${this.tiles.accesses[access].tensor}`))];
    const where = at.length ? ` · loop at ${at.join(", ")}` : "";
    this.told.textContent = `Program at ${place || "the only place"}${where}: ${verbs.join(", ")}`;
    const before = bytes[0] ? 1 - bytes[2] / bytes[0] : 0;
    this.bytes.textContent = `This step asks for ${bytesText(bytes[0])}; ${percent(before)} of it was touched before, ` +
      `by this program or by those launched before it.`;
    for (const picture of this.pictures) picture.draw(program, this.step);
    this.drawStrip(program);
  }

  drawStrip(program) {
    const most = Math.max(1, ...program.steps.map(([, bytes]) => bytes[0]));
    const width = 600 / program.steps.length;
    const bars = program.steps.flatMap(([, [asked, own, fresh]], i) => {
      const parts = [["new", 0, fresh], ["others", fresh, own], ["own", own, asked]];
      const made = parts.map(([kind, low, high]) => svg("rect", { class: kind, x: i * width, width: Math.max(0.5, width - 0.6),
        y: 60 - (56 * high) / most, height: Math.max(0, (56 * (high - low)) / most) }));
      if (i === this.step) made.push(svg("rect", { class: "here", x: i * width, width, y: 1, height: 58 }));
      return made;
    });
    this.strip.replaceChildren(svg("title", {}, "bytes of every step of this program"), ...bars);
  }

  pickStep(event) {
    const box = this.strip.getBoundingClientRect();
    const count = this.tiles.programs[this.program].steps.length;
    this.goTo(this.program, Math.min(count - 1, Math.floor((count * (event.clientX - box.left)) / box.width)));
  }

  toggle() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      this.timer = setInterval(() => this.advance(), 160);
    }
    this.play.textContent = this.timer ? "❚❚ stop" : "▶ play";
  }

  advance() {
    const { programs } = this.tiles;
    if (this.step + 1 < programs[this.program].steps.length) this.goTo(this.program, this.step + 1);
    else this.goTo((this.program + 1) % programs.length, 0);
  }
}

const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);
const key = (kind) => el("span", { class: `key ${kind}` });

// One tensor: its last two dimensions; of those before, the part that the program is in.
class TensorPicture {
  constructor(owner, tensor) {
    this.owner = owner;
    this.tensor = tensor;
    this.accesses = new Set(owner.tiles.accesses.flatMap((access, i) => (access.tensor === tensor.name ? [i] : [])));
    this.isWritten = [...this.accesses].some((i) => owner.tiles.accesses[i].kind !== "load");
    this.rank = tensor.shape.length;
    const [rows, cols] = [this.rank > 1 ? tensor.shape[this.rank - 2] : 1, this.rank ? tensor.shape[this.rank - 1] : 1];
    Object.assign(this, { rows, cols });
    const ratio = Math.max(0.2, Math.min(5, cols / rows));
    this.width = Math.round(ratio >= 1 ? PICTURE : Math.max(90, PICTURE * ratio));
    this.height = Math.round(this.rank < 2 ? 26 : ratio >= 1 ? Math.max(60, PICTURE / ratio) : PICTURE);
    this.canvas = el("canvas", { role: "img" });
    this.caption = el("figcaption", {});
    this.node = el("figure", {}, this.canvas, this.caption);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
  }

  boxes(program, from, to) {
    const found = [];
    for (let s = from; s <= to && s < program.steps.length; s++) {
      for (const box of program.steps[s][2]) if (this.accesses.has(box[0])) found.push(box);
    }
    return found;
  }

  draw(program, step) {
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.width * scale;
    this.canvas.height = this.height * scale;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const style = getComputedStyle(document.body);
    const colour = (name) => style.getPropertyValue(name).trim();
    context.fillStyle = colour("--card");
    context.fillRect(0, 0, this.width, this.height);
    const now = this.boxes(program, step, step);
    const own = this.boxes(program, 0, program.steps.length);
    const lead = this.lead(now[0] || own[0]);
    this.others(context, lead, colour);
    context.globalAlpha = 0.35;
    context.fillStyle = colour("--tile-own");
    for (const box of this.boxes(program, 0, step - 1)) this.paint(context, box, lead);
    context.globalAlpha = 1;
    context.strokeStyle = colour("--tile-now");
    // Of a result, what the program will write; of an operand that would be all of a row or column.
    if (this.isWritten) for (const box of own) this.paint(context, box, lead, "outline");
    context.fillStyle = colour("--tile-now");
    for (const box of now) this.paint(context, box, lead, "bold");
    context.strokeStyle = colour("--line");
    context.strokeRect(0.5, 0.5, this.width - 1, this.height - 1);
    this.describe(lead, now);
  }

  // Of what is written: every program's part, the darker the later; of what is read: a veil.
  others(context, lead, colour) {
    const { programs } = this.owner.tiles;
    const { isWritten } = this;
    context.fillStyle = colour(isWritten ? "--tile-order" : "--tile-own");
    const seen = new Set();
    programs.forEach((program, place) => {
      context.globalAlpha = isWritten ? 0.12 + (0.6 * place) / programs.length : 0.14;
      for (const box of this.boxes(program, 0, program.steps.length)) {
        const name = box.slice(2).join();
        if (!seen.has(name)) this.paint(context, box, lead);
        seen.add(name);
      }
    });
    context.globalAlpha = 1;
  }

  lead(box) {
    if (!box) return null;
    return Array.from({ length: Math.max(0, this.rank - 2) }, (_, i) => box[2 + 2 * i]);
  }

  range(box, back) {
    const place = this.rank - back;
    return place < 0 ? [0, 1] : [box[2 + 2 * place], box[3 + 2 * place]];
  }

  paint(context, box, lead, how) {
    const isHere = (lead || []).every((index, i) => box[2 + 2 * i] <= index && index < box[2 + 2 * i] + box[3 + 2 * i]);
    if (!isHere) return;
    const [row, rows] = this.range(box, 2);
    const [col, cols] = this.range(box, 1);
    const least = how ? 3 : 1;
    const width = Math.max(least, (this.width * cols) / this.cols);
    const height = Math.max(least, (this.height * rows) / this.rows);
    const x = Math.min(this.width - width, (this.width * col) / this.cols);
    const y = Math.min(this.height - height, (this.height * row) / this.rows);
    if (how === "outline") context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    else context.fillRect(x, y, width - (width > 6 ? 0.7 : 0), height - (height > 6 ? 0.7 : 0));
  }

  describe(lead, now) {
    const { name, shape, dtype, bytes } = this.tensor;
    const part = lead && lead.length ? `[${lead.join(", ")}, :, :]` : "";
    const { isWritten } = this;
    const moved = sum(now, (box) => box[1] * bytes);
    this.caption.replaceChildren(el("b", {}, `${name}${part}`), ` ${shape.join("×")} ${dtype}`, el("br"),
      el("span", { class: "soft" }, now.length ? `${bytesText(moved)} ${isWritten ? "written" : "read"} in this step` : "not in this step"));
    this.canvas.setAttribute("aria-label", this.caption.textContent);
  }
}
