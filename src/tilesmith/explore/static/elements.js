"use strict";
// Small things that all parts of the page use: elements, SVG, and numbers as people read them.

const found = JSON.parse(document.getElementById("data").textContent);
// A kernel of several launches has a page for each; one is shown at a time.
const launches = found.launches || [found];
let data = launches[0];
const SVG = "http://www.w3.org/2000/svg";
const LETTERS = "AB";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== ""));
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function escaped(text) {
  return text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
}

function digits(value, count = 3) {
  if (!value) return "0";
  const text = Number(value).toPrecision(count);
  return String(Number(text)).length > 8 ? text : String(Number(text));
}

const msText = (ms) => (ms == null ? "-" : ms < 0.1 ? `${digits(ms * 1000)} µs` : `${digits(ms)} ms`);

function scaled(value, unit, step, names) {
  let place = 0;
  while (value >= step && place < names.length - 1) {
    value /= step;
    place += 1;
  }
  return `${digits(value)} ${names[place]}${unit}`;
}

const bytesText = (count) => scaled(count, "B", 1024, ["", "Ki", "Mi", "Gi", "Ti"]);
const rateText = (value, unit) => scaled(value, unit, 1000, ["", "k", "M", "G", "T", "P"]);
const percent = (share) => `${Math.round(100 * share)} %`;
const isNarrow = () => window.matchMedia("(max-width: 760px)").matches;

// What a view is called where there are two of them.
const viewName = (index) => (data.views.length > 1 ? LETTERS[index] : "");

function section(id, title, ...children) {
  return el("section", { id }, el("h2", {}, title), ...children);
}
