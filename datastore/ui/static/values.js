// The attributes of a change, before and after.

import { pathText } from "./changes.js";
import { indented, lineDiff, middle, twins } from "./diff.js";
import { badge, foreign, h } from "./dom.js";
import { counted, visible } from "./text.js";

/** @typedef {import("./dom.js").Child} Child */

// Attributes beyond these are shown on request.
const MAX_ATTRIBUTES = 100;
// Longer values have a box of their own.
const MAX_INLINE = 600;

/**
 * An attribute, and whether its object goes with it.
 * @typedef {import("./changes.js").Attribute & {isGone?: boolean}} ShownAttribute
 */

/**
 * @param {ShownAttribute[]} all
 * @returns {HTMLElement}
 */
export function attributes(all) {
    if (all.length === 0) {
        return h("p", { class: "faint" }, "No attribute changes.");
    }
    const table = h("div", { class: "attributes" }, all.slice(0, MAX_ATTRIBUTES).map(attribute));
    if (all.length > MAX_ATTRIBUTES) {
        const more = h(
            "button",
            { type: "button", class: "quiet", click: () => more.replaceWith(...all.slice(MAX_ATTRIBUTES).map(attribute)) },
            `Show ${counted(all.length - MAX_ATTRIBUTES, "more attribute")}`,
        );
        table.append(more);
    }
    return table;
}

/** @param {ShownAttribute} attribute */
function attribute(attribute) {
    const name = pathText(attribute.path);
    return h(
        "div",
        { class: "attribute" },
        name !== "" && h("div", { class: "path" }, foreign(name), attribute.replaces && badge("forces replacement", "replace")),
        h("div", { class: "value" }, values(attribute)),
    );
}

/** A value as text. @typedef {{text: string, isLong: boolean, isString: boolean}} Shown */

/**
 * @param {unknown} value
 * @returns {Shown}
 */
function shown(value) {
    if (typeof value !== "string") {
        const text = JSON.stringify(value, null, 2) ?? "null";
        return { text, isLong: text.includes("\n"), isString: false };
    }
    const json = indented(value);
    return { text: json ?? value, isLong: json !== null || value.includes("\n"), isString: json === null };
}

/**
 * Before and after of an attribute.
 * @param {ShownAttribute} attribute
 * @returns {Child[]}
 */
function values(attribute) {
    if (attribute.sensitive) {
        return [h("span", { class: "faint" }, "(sensitive value)")];
    }
    const [before, after] = [shown(attribute.before), shown(attribute.after)];
    const cut = [
        cutNote(attribute.before, attribute.before_length, "before"),
        cutNote(attribute.after, attribute.after_length, "after"),
    ];
    const unknown = attribute.unknown && h("span", { class: "faint" }, has(attribute.after) ? " (in part known after apply)" : "(known after apply)");
    if (has(attribute.before) && has(attribute.after) && (before.isLong || after.isLong)) {
        return [lineDiff(before.text, after.text), sameNote(attribute, before, after), unknown, cut];
    }
    const arrow = h("span", { class: "arrow" }, h("span", { "aria-hidden": "true" }, " → "), h("span", { class: "unseen" }, " becomes "));
    const inPair = has(attribute.before) && has(attribute.after) && before.isString && after.isString;
    const parts = inPair ? (twins(before.text, after.text) ?? differing(before.text, after.text)) : null;
    const old = has(attribute.before) && value(before, "removed", parts?.before);
    const fresh = has(attribute.after)
        ? [value(after, "added", parts?.after), unknown]
        : unknown || (has(attribute.before) && !attribute.isGone && h("span", { class: "faint" }, "null"));
    return [old, old && fresh && arrow, fresh || (!old && "null"), sameNote(attribute, before, after), cut];
}

/**
 * Why values that differ have the same text here.
 * @param {ShownAttribute} attribute
 * @param {Shown} before
 * @param {Shown} after
 */
function sameNote(attribute, before, after) {
    const isCut = attribute.before_length !== undefined || attribute.after_length !== undefined;
    if (before.text !== after.text || isCut || !has(attribute.before) || !has(attribute.after) || attribute.unknown) {
        return null;
    }
    const isText = typeof attribute.before === "string" && typeof attribute.after === "string";
    return h("p", { class: "faint" }, isText ? "Only white space of the JSON changes." : "The values look the same here. The plan text has both as they are.");
}

/** @param {unknown} value */
function has(value) {
    return value !== undefined && value !== null;
}

/**
 * Two texts as elements in which what differs is marked.
 * @param {string} before
 * @param {string} after
 */
function differing(before, after) {
    const parts = middle(before, after);
    const element = (/** @type {{start: string, middle: string, end: string}} */ { start, middle, end }) =>
        start + end !== "" && middle !== "" ? h("bdi", null, visible(start), h("mark", null, visible(middle)), visible(end)) : undefined;
    return { before: element(parts.before), after: element(parts.after) };
}

/**
 * @param {Shown} shown
 * @param {string} name
 * @param {HTMLElement} [content] the text as an element
 */
function value(shown, name, content = foreign(shown.text)) {
    if (shown.isLong || shown.text.length > MAX_INLINE) {
        // It scrolls, so keys must reach it.
        return h("pre", { class: `text ${name}`, tabindex: 0 }, content);
    }
    const quote = shown.isString ? '"' : "";
    return h("span", { class: `text ${name}` }, quote, content, quote);
}

/**
 * @param {unknown} value
 * @param {number | undefined} length
 * @param {string} which
 */
function cutNote(value, length, which) {
    return (
        length !== undefined &&
        typeof value === "string" &&
        h("p", { class: "cut" }, `The value ${which} is cut: it has ${counted(length, "character")}.`)
    );
}
