// Elements. Text comes in as text nodes only.

import { age, visible, visibleText } from "./text.js";

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * An element with these attributes and children. A function is a listener, and `true` an attribute without a value.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes | null} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (typeof value === "function") {
            element.addEventListener(name, value);
        } else if (value !== null && value !== undefined && value !== false) {
            element.setAttribute(name, value === true ? "" : String(value));
        }
    }
    add(element, children);
    return element;
}

/**
 * @param {Node} parent
 * @param {Child[]} children
 */
function add(parent, children) {
    for (const child of children) {
        if (Array.isArray(child)) {
            add(parent, child);
        } else if (child instanceof Node) {
            parent.appendChild(child);
        } else if (child !== null && child !== undefined && child !== false) {
            parent.appendChild(document.createTextNode(String(child)));
        }
    }
}

/**
 * Replaces what an element has.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
    element.replaceChildren();
    add(element, children);
}

/**
 * A text that others wrote: hidden characters are visible, and its direction is its own.
 * @param {string} text
 * @param {string} [className]
 */
export function foreign(text, className) {
    return h("bdi", { class: className }, visible(text));
}

/**
 * A word with a colour, which never has its meaning alone.
 * @param {string} text
 * @param {string} kind
 * @param {string} [title]
 */
export function badge(text, kind, title) {
    return h("span", { class: `badge ${kind}`, title: title && visibleText(title) }, visible(text));
}

/**
 * A time as its age, with the whole time as its title.
 * @param {string | null | undefined} text
 */
export function when(text) {
    const time = Date.parse(text ?? "");
    if (!text || Number.isNaN(time)) {
        return h("span", { class: "faint" }, "unknown");
    }
    const title = new Date(time).toLocaleString("en", { dateStyle: "medium", timeStyle: "long" });
    return h("time", { datetime: new Date(time).toISOString(), title }, age(time));
}

/**
 * A message in place of data.
 * @param {string} title
 * @param {...Child} more
 */
export function notice(title, ...more) {
    return h("div", { class: "notice" }, h("p", { class: "title" }, title), more);
}

/**
 * A message that screen readers read out.
 * @param {string} text
 */
export function announce(text) {
    let region = document.getElementById("announcements");
    if (!region) {
        region = h("div", { id: "announcements", class: "unseen", "aria-live": "polite" });
        document.body.append(region);
    }
    region.textContent = text;
}

/**
 * Calls a function once its calls have stopped for a while.
 * @param {number} milliseconds
 * @param {() => void} call
 */
export function delayed(milliseconds, call) {
    let timer = 0;
    return () => {
        clearTimeout(timer);
        timer = setTimeout(call, milliseconds);
    };
}

/**
 * Whether keys are for a field, not for the page.
 * @param {KeyboardEvent} event
 */
export function isTyping(event) {
    const target = event.target;
    return (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        (target instanceof HTMLElement &&
            (target.isContentEditable || ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)))
    );
}
