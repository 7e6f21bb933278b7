// The plan of a run: its changes as a list that is folded and filtered.

import { KINDS, REASONS, Tree, importedId } from "./changes.js";
import { Chunks } from "./chunks.js";
import { indented, lineDiff, middle } from "./diff.js";
import { announce, badge, delayed, fill, foreign, h, isTyping } from "./dom.js";
import { count, counted, visible, visibleText } from "./text.js";

/**
 * @typedef {import("./changes.js").Attribute} Attribute
 * @typedef {import("./changes.js").Change} Change
 * @typedef {import("./changes.js").Kind} Kind
 * @typedef {import("./changes.js").Row} Row
 * @typedef {import("./dom.js").Child} Child
 */

// Attributes beyond these are shown on request.
const MAX_ATTRIBUTES = 100;
// Longer values have a box of their own.
const MAX_INLINE = 600;
const TOO_LARGE = "The values are too large to be shown here. The text of the plan has them.";

/** The changes of a plan on the page. */
export class PlanView {
    /** @param {import("./changes.js").Changes} changes */
    constructor(changes) {
        this.tree = new Tree(changes);
        this.total = this.tree.resources.length;
        /** @type {Chunks<Row>} */
        this.list = new Chunks({ render: (row) => this.#row(row), height: 34, size: 20 });
        this.result = h("span", { class: "result", role: "status" });
        this.input = h("input", {
            type: "search",
            placeholder: "Filter by address or value",
            "aria-label": "Filter the changes by address or value",
            spellcheck: "false",
            autocomplete: "off",
            input: delayed(120, () => this.#filter()),
        });
        this.kinds = h("div", { class: "kinds", role: "group", "aria-label": "Filter the changes by action" });
        this.element = h(
            "div",
            { class: "plan" },
            this.#truncated(),
            h("div", { class: "toolbar" }, this.input, h("div", { class: "buttons" }, this.#buttons(), this.result), this.kinds),
            this.list.element,
        );
        this.element.addEventListener("keydown", (event) => this.#key(event));
        this.#kindButtons();
        this.show();
    }

    /** Shows the rows for what is open and filtered. */
    show() {
        const rows = this.tree.rows();
        this.list.set(rows);
        const { shown } = this.tree;
        const isFiltered = this.tree.kinds.size > 0 || this.tree.words.length > 0;
        fill(this.result, isFiltered ? `${count(shown)} of ${counted(this.total, "change")}` : counted(this.total, "change"));
        if (rows.length === 0) {
            const text = isFiltered ? "No change matches the filter." : "No changes: what exists is as the code declares it.";
            fill(this.list.element, h("p", { class: "empty" }, text));
        }
        return rows;
    }

    /**
     * Opens the change that a link names.
     * @param {string} id
     */
    reveal(id) {
        if (!this.tree.has(id)) {
            return false;
        }
        this.tree.open.add(id);
        let rows = this.show();
        if (!rows.some((row) => idOf(row) === id)) {
            this.tree.showAll();
            this.input.value = "";
            this.#kindButtons();
            rows = this.show();
        }
        const row = this.list.reveal(rows.findIndex((row) => idOf(row) === id));
        row?.querySelector("button")?.focus({ preventScroll: true });
        row?.classList.add("target");
        return true;
    }

    #filter() {
        this.tree.search(this.input.value);
        this.show();
    }

    #kindButtons() {
        const counts = this.tree.counts();
        const buttons = KINDS.filter(({ kind }) => counts.has(kind)).map(({ kind, sign, word }) => {
            const toggle = () => {
                if (!this.tree.kinds.delete(kind)) {
                    this.tree.kinds.add(kind);
                }
                button.setAttribute("aria-pressed", String(this.tree.kinds.has(kind)));
                this.show();
            };
            const isPressed = String(this.tree.kinds.has(kind));
            const button = h(
                "button",
                { type: "button", class: `kind ${kind}`, "aria-pressed": isPressed, click: toggle },
                h("span", { class: "sign", "aria-hidden": "true" }, sign),
                ` ${count(counts.get(kind) ?? 0)} ${word}`,
            );
            return button;
        });
        fill(this.kinds, buttons);
    }

    #buttons() {
        const expand = () => {
            this.tree.openAll();
            this.show();
        };
        const collapse = () => {
            this.tree.open.clear();
            this.show();
        };
        return [
            h("button", { type: "button", class: "quiet", click: expand }, "Expand all"),
            h("button", { type: "button", class: "quiet", click: collapse }, "Collapse all"),
        ];
    }

    #truncated() {
        const { truncated } = this.tree.changes;
        return (
            truncated &&
            h(
                "p",
                { class: "warning" },
                `The plan is too large to be shown as a whole: ${counted(truncated.resources, "resource")} and ${counted(truncated.attributes, "attribute")} are left out. The text has all of them.`,
            )
        );
    }

    /**
     * Moves between rows by the arrow keys, and to the filter by `/`.
     * @param {KeyboardEvent} event
     */
    #key(event) {
        const target = /** @type {HTMLElement} */ (event.target);
        const row = target.closest("[data-row]");
        if (event.key === "Escape" && target === this.input && this.input.value) {
            this.input.value = "";
            this.#filter();
        } else if (event.key === "ArrowDown" && target === this.input) {
            this.#focus(0);
            event.preventDefault();
        } else if (row && !isTyping(event)) {
            const rows = [...this.list.element.querySelectorAll("[data-row]")];
            const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
            const isOpen = row.getAttribute("aria-expanded") === "true";
            if (step) {
                this.#focus(rows.indexOf(row) + step);
                event.preventDefault();
            } else if ((event.key === "ArrowRight" && !isOpen) || (event.key === "ArrowLeft" && isOpen)) {
                /** @type {HTMLElement} */ (row).click();
                event.preventDefault();
            }
        }
    }

    /** @param {number} at */
    #focus(at) {
        const row = /** @type {HTMLElement | undefined} */ (this.list.element.querySelectorAll("[data-row]")[at]);
        row?.focus();
        row?.scrollIntoView({ block: "nearest" });
    }

    /**
     * @param {Row} row
     * @returns {HTMLElement}
     */
    #row(row) {
        switch (row.type) {
            case "section":
                return this.#heading(2, row, 0, row.title, h("span", { class: "faint" }, ` ${count(row.count)}`));
            case "module":
                return this.#heading(row.level, row, row.depth, row.title, signs(row.counts));
            case "group":
                return this.#heading(row.level, row, row.depth, wordOf(row.kind), h("span", { class: "faint" }, ` ${count(row.count)}`));
            case "change":
                return this.#change(row.change, row.depth);
            case "output":
                return this.#output(row.id, row.output);
            case "check":
                return this.#check(row.id, row.check);
        }
    }

    /**
     * @param {number} level
     * @param {{type: string, key: string, isOpen: boolean, kind?: Kind}} row
     * @param {number} depth
     * @param {string} title
     * @param {Child} more
     */
    #heading(level, row, depth, title, more) {
        const toggle = () => {
            if (!this.tree.closed.delete(row.key)) {
                this.tree.closed.add(row.key);
            }
            const { top } = button.getBoundingClientRect();
            const rows = this.show();
            const at = rows.findIndex((other) => "key" in other && other.key === row.key);
            this.list.reveal(at, top)?.querySelector("button")?.focus({ preventScroll: true });
        };
        const button = h(
            "button",
            { type: "button", "data-row": true, "aria-expanded": String(row.isOpen), click: toggle },
            foreign(title),
            more,
        );
        const tag = level === 2 ? "h2" : level === 3 ? "h3" : "h4";
        return h(tag, { class: `heading ${row.type} ${row.kind ?? ""} depth-${Math.min(depth, 8)}` }, button);
    }

    /**
     * @param {Change} change
     * @param {number} depth
     */
    #change(change, depth) {
        const { resource } = change;
        const causes = resource.attributes.filter(({ replaces }) => replaces);
        const badges = [
            change.kind === "replace" && causes.length > 0 && badge(`because of ${causes.map(({ path }) => pathText(path)).slice(0, 3).join(", ")}`, "replace"),
            resource.reason === "replace_because_tainted" && badge("tainted", "replace"),
            resource.previous_address && badge("moved", "move", `from ${resource.previous_address}`),
            importedId(resource) !== null && badge("imported", "import"),
            resource.deposed && badge(`deposed ${resource.deposed}`, "delete"),
            resource.actions[0] === "create" && resource.actions.length > 1 && badge("created first", "create"),
        ];
        return this.#item(change.id, change.kind, change.short, resource.address, depth, badges, () => details(change));
    }

    /**
     * @param {string} id
     * @param {import("./changes.js").Output} output
     */
    #output(id, output) {
        const kind = output.actions.length === 1 && KINDS.find(({ kind }) => kind === output.actions[0])?.kind;
        const attribute = { ...output, path: [] };
        return this.#item(id, kind || "update", output.name, id, 0, [], () => [output.too_large ? h("p", { class: "cut" }, TOO_LARGE) : attributes([attribute])]);
    }

    /**
     * @param {string} id
     * @param {import("./changes.js").Check} check
     */
    #check(id, check) {
        const isWrong = check.status === "fail" || check.status === "error";
        const badges = [badge(check.status, isWrong ? "delete" : check.status === "pass" ? "good" : "none")];
        const problems = check.problems.map((problem) => h("p", { class: "problem" }, foreign(problem)));
        const body = () => (problems.length > 0 ? problems : [h("p", { class: "faint" }, "No problems are reported.")]);
        return this.#item(id, "none", check.address, id, 0, badges, body);
    }

    /**
     * A row that opens.
     * @param {string} id
     * @param {Kind} kind
     * @param {string} title
     * @param {string} name
     * @param {number} depth
     * @param {Child[]} badges
     * @param {() => Child[]} body
     */
    #item(id, kind, title, name, depth, badges, body) {
        const sign = KINDS.find((other) => other.kind === kind)?.sign ?? "·";
        const toggle = () => {
            if (!this.tree.open.delete(id)) {
                this.tree.open.add(id);
            }
            show();
        };
        const button = h(
            "button",
            { type: "button", class: "title", "data-row": true, title: visibleText(name), click: toggle },
            h("span", { class: "sign", "aria-hidden": "true" }, sign),
            h("span", { class: "unseen" }, `${wordOf(kind)} `),
            h("span", { class: "what" }, foreign(title, "address"), badges),
        );
        const link = h(
            "a",
            { class: "link", href: `#${encodeURIComponent(id)}`, "aria-label": `Link to ${visibleText(name)}`, title: "Link to this", click: () => announce("The address of this page is the link.") },
            "#",
        );
        const item = h("div", { class: `item ${kind} depth-${Math.min(depth, 8)}` }, h("div", { class: "head" }, button, link));
        const show = () => {
            const isOpen = this.tree.open.has(id);
            button.setAttribute("aria-expanded", String(isOpen));
            item.querySelector(".details")?.remove();
            if (isOpen) {
                item.append(h("div", { class: "details" }, body()));
            }
        };
        show();
        return item;
    }
}

/** @param {Row} row */
function idOf(row) {
    return row.type === "change" ? row.change.id : "id" in row ? row.id : null;
}

/** @param {Kind} kind */
function wordOf(kind) {
    return KINDS.find((other) => other.kind === kind)?.word ?? "no change";
}

/** @param {Map<Kind, number>} counts */
function signs(counts) {
    return KINDS.filter(({ kind }) => counts.has(kind)).map(({ kind, sign, word }) =>
        h("span", { class: `count ${kind}` }, ` ${sign}${count(counts.get(kind) ?? 0)}`, h("span", { class: "unseen" }, ` to ${word}`)),
    );
}

/**
 * What an open change shows.
 * @param {Change} change
 * @returns {Child[]}
 */
function details(change) {
    const { reason, previous_address, deposed, module, address, too_large } = change.resource;
    const imported = importedId(change.resource);
    const fact = (/** @type {string} */ name, /** @type {Child} */ value) => h("div", null, h("dt", null, name), h("dd", null, value));
    const facts = [
        module && fact("Address", h("code", null, foreign(address))),
        reason && fact("Because", foreign(REASONS[reason] ?? reason)),
        previous_address && fact("Moved from", h("code", null, foreign(previous_address))),
        imported !== null && fact("Imported by ID", h("code", null, foreign(imported))),
        deposed && fact("Deposed", ["an object that an earlier replacement left: ", h("code", null, foreign(deposed))]),
    ].filter(Boolean);
    const isGone = change.kind === "delete" || change.kind === "forget";
    const all = change.resource.attributes.map((attribute) => (isGone ? { ...attribute, after: undefined, isGone } : attribute));
    return [facts.length > 0 && h("dl", { class: "facts" }, facts), too_large ? h("p", { class: "cut" }, TOO_LARGE) : attributes(all)];
}

/**
 * An attribute, and whether its object goes with it.
 * @typedef {Attribute & {isGone?: boolean}} ShownAttribute
 */

/**
 * @param {ShownAttribute[]} all
 * @returns {HTMLElement}
 */
function attributes(all) {
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

/**
 * A path as the language writes it: `tags["a b"]`, `rule[0].port`.
 * @param {(string | number)[]} path
 */
export function pathText(path) {
    return path
        .map((step, at) => {
            if (typeof step === "number") {
                return `[${step}]`;
            }
            return /^[\p{L}_][\p{L}\p{N}_-]*$/u.test(step) ? `${at > 0 ? "." : ""}${step}` : `[${JSON.stringify(step)}]`;
        })
        .join("");
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
    const has = (/** @type {unknown} */ value) => value !== undefined && value !== null;
    const [before, after] = [shown(attribute.before), shown(attribute.after)];
    const cut = [
        cutNote(attribute.before, attribute.before_length, "before"),
        cutNote(attribute.after, attribute.after_length, "after"),
    ];
    const unknown = attribute.unknown && h("span", { class: "faint" }, has(attribute.after) ? " (in part known after apply)" : "(known after apply)");
    if (has(attribute.before) && has(attribute.after) && (before.isLong || after.isLong)) {
        const isSame = before.text === after.text && "Only white space of the JSON changes.";
        return [lineDiff(before.text, after.text), isSame && h("p", { class: "faint" }, isSame), unknown, cut];
    }
    const arrow = h("span", { class: "arrow" }, h("span", { "aria-hidden": "true" }, " → "), h("span", { class: "unseen" }, " becomes "));
    const inPair = has(attribute.before) && has(attribute.after) && before.isString && after.isString;
    const parts = inPair ? middle(before.text, after.text) : null;
    const old = has(attribute.before) && value(before, "removed", parts?.before);
    const fresh = has(attribute.after)
        ? [value(after, "added", parts?.after), unknown]
        : unknown || (has(attribute.before) && !attribute.isGone && h("span", { class: "faint" }, "null"));
    return [old, old && fresh && arrow, fresh || (!old && "null"), cut];
}

/**
 * @param {Shown} shown
 * @param {string} name
 * @param {{start: string, middle: string, end: string}} [parts]
 */
function value(shown, name, parts) {
    if (shown.isLong || shown.text.length > MAX_INLINE) {
        // It scrolls, so keys must reach it.
        return h("pre", { class: `text ${name}`, tabindex: 0 }, foreign(shown.text));
    }
    const quote = shown.isString ? '"' : "";
    const differs = parts && parts.start + parts.end !== "" && parts.middle !== "";
    const content = differs
        ? h("bdi", null, visible(parts.start), h("mark", null, visible(parts.middle)), visible(parts.end))
        : foreign(shown.text);
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
