// The plan of a run: its changes as a list that is folded and filtered.

import { KINDS, REASONS, Tree, action, actionName, badgesOf, importedId } from "./changes.js";
import { Chunks } from "./chunks.js";
import { announce, badge, delayed, fill, foreign, h, isTyping } from "./dom.js";
import { count, counted, visible, visibleText } from "./text.js";
import { attributes } from "./values.js";

/**
 * @typedef {import("./changes.js").Change} Change
 * @typedef {import("./changes.js").Kind} Kind
 * @typedef {import("./changes.js").Row} Row
 * @typedef {import("./dom.js").Child} Child
 */

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
        /** What a link names that is not here. */
        this.missing = h("p", { class: "warning", role: "status", hidden: true });
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
            this.#warnings(),
            h("div", { class: "toolbar" }, this.input, h("div", { class: "buttons" }, this.#buttons(), this.result), this.kinds),
            this.missing,
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
        const { resources, drift, outputs, checks } = this.tree.shown;
        const isFiltered = this.tree.kinds.size > 0 || this.tree.words.length > 0;
        const found = [
            `${isFiltered ? `${count(resources)} of ` : ""}${counted(this.total, "change")}`,
            drift > 0 && counted(drift, "change outside of the code", "changes outside of the code"),
            outputs > 0 && counted(outputs, "output"),
            checks > 0 && counted(checks, "check"),
        ];
        fill(this.result, found.filter(Boolean).join(", "));
        if (rows.length === 0) {
            const text = isFiltered ? "No change matches the filter." : "No changes: the infrastructure matches the configuration.";
            fill(this.list.element, h("p", { class: "empty" }, text));
        }
        return rows;
    }

    /**
     * Opens the change that a link names, or says that there is none.
     * @param {string} link
     */
    reveal(link) {
        const id = this.tree.find(link);
        this.missing.hidden = id !== undefined || document.getElementById(link) !== null;
        if (id === undefined) {
            const isCut = (this.tree.changes.truncated?.resources ?? 0) > 0;
            fill(this.missing, foreign(link.slice(0, 200)), " is not among the changes of this plan", isCut && " that are shown here", ".");
            return;
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
    }

    #filter() {
        this.tree.search(this.input.value);
        this.show();
    }

    #kindButtons() {
        const counts = this.tree.counts();
        const buttons = KINDS.filter(({ kind }) => counts.has(kind)).map(({ kind, sign }) => {
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
                ` ${count(counts.get(kind) ?? 0)} `,
                foreign(shortened(this.tree.wordOf(kind))),
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

    /** What of the plan is not here. */
    #warnings() {
        const { errored, truncated } = this.tree.changes;
        const { resources = 0, attributes = 0 } = truncated ?? {};
        const left = [resources > 0 && counted(resources, "resource"), attributes > 0 && counted(attributes, "attribute")].filter(Boolean);
        const verb = resources + attributes === 1 ? "is" : "are";
        return [
            errored && h("p", { class: "warning" }, "Planning failed: this is only a part of the plan."),
            left.length > 0 && h("p", { class: "warning" }, `${left.join(" and ")} ${verb} left out here. The plan text has all of them.`),
        ];
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
                return this.#heading(row.level, row, row.depth, shortened(this.tree.wordOf(row.kind)), h("span", { class: "faint" }, ` ${count(row.count)}`));
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
        const badges = badgesOf(change).map(({ text, look, title }) => badge(text, look, title));
        return this.#item(change.id, change.kind, change.short, resource.address, depth, badges, () => details(change));
    }

    /**
     * @param {string} id
     * @param {import("./changes.js").Output} output
     */
    #output(id, output) {
        const kind = action(output.actions);
        const attribute = { ...output, path: [] };
        const badges = [kind === "other" && badge(actionName(output.actions), "other")];
        return this.#item(id, kind, output.name, id, 0, badges, () => [output.too_large ? h("p", { class: "cut" }, TOO_LARGE) : attributes([attribute])]);
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
            h("span", { class: "unseen" }, visible(`${shortened(this.tree.wordOf(kind))} `)),
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

/** @param {string} text */
function shortened(text) {
    return text.length > 40 ? `${text.slice(0, 40)}…` : text;
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
        reason && fact("Because", foreign(Object.hasOwn(REASONS, reason) ? (REASONS[reason] ?? reason) : reason)),
        previous_address && fact("Moved from", h("code", null, foreign(previous_address))),
        imported !== null && fact("Imported by ID", h("code", null, foreign(imported))),
        deposed && fact("Deposed", ["an object that an earlier replacement left: ", h("code", null, foreign(deposed))]),
    ].filter(Boolean);
    const isGone = change.kind === "delete" || change.kind === "forget";
    const all = change.resource.attributes.map((attribute) => (isGone ? { ...attribute, after: undefined, isGone } : attribute));
    return [facts.length > 0 && h("dl", { class: "facts" }, facts), too_large ? h("p", { class: "cut" }, TOO_LARGE) : attributes(all)];
}
