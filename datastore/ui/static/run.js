// One run: what came of it, its plan, its log, its steps and its files.

import { again } from "./again.js";
import { Refusal, api, exactly, get, json, jsonIfAny, page, texts } from "./api.js";
import { badge, fill, foreign, h, notice, when } from "./dom.js";
import { failed, failure } from "./failures.js";
import { follow } from "./follow.js";
import { counts, outcome, revision } from "./lists.js";
import { LogView } from "./log.js";
import { PlanView } from "./plan.js";
import { awaitsReport, report } from "./record.js";
import { bytes, duration, visibleText } from "./text.js";

/**
 * @typedef {import("./dom.js").Child} Child
 * @typedef {{namespace: string, layer: string, run: string, attempt?: number}} Run
 * @typedef {"changes" | "text" | "log" | "steps" | "files"} Tab
 */

/** @type {{tab: Tab, title: string}[]} */
const TABS = [
    { tab: "changes", title: "Changes" },
    { tab: "text", title: "Plan text" },
    { tab: "log", title: "Log" },
    { tab: "steps", title: "Steps" },
    { tab: "files", title: "Files" },
];

/** After how many seconds a run is asked about again: one that works, and one that is not there yet. */
const WORKING = 3;
const MISSING = 5;

export class RunView {
    /**
     * @param {HTMLElement} view
     * @param {{namespace: string, layer: string, run: string}} key
     * @param {URLSearchParams} address
     */
    constructor(view, key, address) {
        this.view = view;
        this.key = key;
        this.wanted = address.get("attempt");
        this.known = "";
        /** @type {any[]} */
        this.attempts = [];
        this.record = report(null);
        /** @type {Map<Tab, HTMLElement>} */
        this.panels = new Map();
        this.header = h("div", { class: "run-header" });
        this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the run" });
        this.body = h("div");
        /** @type {PlanView | null} */
        this.plan = null;
        /** @type {LogView | null} */
        this.log = null;
        /** @type {LogView | null} */
        this.text = null;
        /** Ends the request for the log that is shown. */
        this.following = new AbortController();
        /** Shows whether the log still grows. */
        this.sayLive = () => {};
    }

    async start() {
        await this.load();
        if (this.attempts.length === 0) {
            fill(this.view, h("h1", null, foreign(this.key.run)), this.#missing());
            again(MISSING, async () => {
                await this.load();
                if (this.attempts.length > 0) {
                    this.#show();
                }
                return this.attempts.length === 0;
            });
            return;
        }
        this.#show();
    }

    #show() {
        fill(this.view, this.header, this.tabs, this.body);
        this.showTab(this.#tabOfAddress() ?? this.#defaultTab());
        addEventListener("popstate", () => this.showTab(this.#tabOfAddress() ?? this.#defaultTab()));
        addEventListener("hashchange", () => this.#reveal());
        if (this.mayChange || awaitsReport(this.attempt)) {
            again(WORKING, () => this.poll());
        }
    }

    /** Whether the attempt works, or has only been claimed yet. */
    get mayChange() {
        return Boolean(this.attempt.live) || this.attempt.artifacts.length === 0;
    }

    /** Asks for the attempts, and for the report of the one that is shown. */
    async load() {
        const before = this.attempts;
        this.attempts = (await json("attempts", this.key)).attempts;
        if (this.attempts.length > 0 && this.attempt) {
            try {
                this.record = report(this.#has("run.json") ? await jsonIfAny("artifacts", { ...this.#query(), name: "run.json" }) : null);
            } catch (error) {
                this.attempts = before; // The next poll must still see what is new.
                throw error;
            }
            const known = JSON.stringify([this.attempts.length, this.attempt.live, this.#heard(), this.record]);
            if (known !== this.known) {
                this.known = known;
                this.#showHeader();
            }
        } else {
            this.attempts = [];
        }
    }

    /** Shows what is new of a run that has not ended, and returns whether more may come. */
    async poll() {
        const { attempt } = this.attempt;
        const before = JSON.stringify(this.attempt);
        const hadPlan = this.#planOf() !== null;
        const why = this.#whyNoPlan();
        await this.load();
        if (this.attempts.length === 0) {
            this.following.abort();
            fill(this.view, h("h1", null, foreign(this.key.run)), this.#missing());
            return false;
        }
        if (attempt !== this.attempt.attempt) {
            this.panels.clear();
            this.showTab(this.tab ?? "log");
        } else if (before !== JSON.stringify(this.attempt)) {
            const plan = /** @type {Tab[]} */ (hadPlan || why === this.#whyNoPlan() ? [] : ["changes", "text"]);
            for (const tab of /** @type {Tab[]} */ ([...plan, "steps", "files"])) {
                this.#forget(tab);
            }
            this.log?.setDurations(this.#durations());
            this.sayLive();
        }
        return this.mayChange || awaitsReport(this.attempt);
    }

    /** The attempt that is shown: the one of the address, else the newest. */
    get attempt() {
        return this.wanted === null ? this.attempts.at(-1) : this.attempts.find(({ attempt }) => String(attempt) === this.wanted);
    }

    /** @returns {Required<Run>} */
    #query() {
        return { ...this.key, attempt: this.attempt.attempt };
    }

    /** @param {string} name */
    #has(name) {
        return this.attempt.artifacts.some((/** @type {{name: string}} */ file) => file.name === name);
    }

    #missing() {
        const { namespace, layer } = this.key;
        const what = this.wanted === null ? "There is no such run" : `The run has no attempt ${this.wanted}`;
        return notice(what, h("p", null, "It may have expired, or it has not stored anything yet: then it is shown here once it does. ", h("a", { href: page({ namespace, layer }) }, "Runs of ", foreign(layer))));
    }

    /** The plan of this run; of an apply, the plan that it applied. @returns {Required<Run> | null} */
    #planOf() {
        if (this.#has("plan.json") || this.#has("pretty.plan")) {
            return this.#query();
        }
        const { plan } = this.record;
        return plan && { ...this.key, ...plan };
    }

    /** @returns {Tab} */
    #defaultTab() {
        if (location.hash.startsWith("#L")) {
            return "log";
        }
        const hasFailed = ["failed", "interrupted"].includes(this.record.outcome);
        const isPlan = this.#has("plan.json");
        return this.attempt.live || hasFailed || !isPlan ? "log" : "changes";
    }

    #tabOfAddress() {
        const wanted = new URLSearchParams(location.search).get("view");
        return TABS.find(({ tab }) => tab === wanted)?.tab;
    }

    #showHeader() {
        const { namespace, layer, run } = this.key;
        const { attempt, live } = this.attempt;
        const { record } = this;
        const fact = (/** @type {string} */ name, /** @type {Child} */ value) => value && h("div", null, h("dt", null, name), h("dd", null, value));
        const seconds = record.steps.reduce((sum, step) => sum + step.seconds, 0);
        const others = this.attempts.map((other) =>
            h("a", { href: page({ namespace, layer, run, attempt: other.attempt }), "aria-current": other === this.attempt ? "page" : null }, other.attempt),
        );
        const plan = this.#planOf();
        const isOther = plan && (plan.run !== run || plan.attempt !== attempt);
        fill(
            this.header,
            h("h1", null, foreign(run)),
            h(
                "dl",
                { class: "facts" },
                fact("Outcome", [outcome(live ?? (record.outcome || "not finished")), record.class && record.class !== "unknown" && badge(record.class, "delete")]),
                fact("Action", record.action && foreign(record.action)),
                fact("Changes", counts(record.counts)),
                fact("Started", record.started && when(record.started)),
                fact("Time in tools", seconds > 0 && duration(seconds)),
                fact("Revision", revision(record.revision)),
                fact("Tool", record.tool && foreign(record.tool)),
                fact("Applied plan", isOther && h("a", { href: page({ namespace, layer, run: plan.run, attempt: plan.attempt }) }, foreign(`${plan.run}/${plan.attempt}`))),
                fact("Attempts", this.attempts.length > 1 && h("nav", { class: "attempts", "aria-label": "Attempts" }, others)),
            ),
            live === "lost" && h("p", { class: "warning" }, this.#silence()),
            failure(record),
        );
    }

    /** When the runner of a lost run stored something last. @returns {string | undefined} */
    #heard() {
        const times = this.attempt.artifacts.map((/** @type {{modified: string}} */ file) => file.modified);
        return this.attempt.live === "lost" ? times.sort().at(-1) : undefined;
    }

    /** What is known of a lost run. @returns {Child} */
    #silence() {
        const last = this.attempts.at(-1);
        const outlook = last === this.attempt ? "It may return." : `Attempt ${last.attempt} was made after it.`;
        return ["The runner was last heard of ", when(this.#heard()), ": it was killed, or cannot reach the datastore. ", outlook];
    }

    /** @param {Tab} tab */
    showTab(tab) {
        this.tab = tab;
        const buttons = TABS.map(({ tab: other, title }) =>
            h(
                "a",
                {
                    role: "tab",
                    id: `tab-${other}`,
                    href: this.#addressOf(other),
                    "aria-selected": String(other === tab),
                    "aria-controls": other === tab ? "panel" : null,
                    tabindex: other === tab ? "0" : "-1",
                    click: (/** @type {MouseEvent} */ event) => this.#choose(event, other),
                    keydown: (/** @type {KeyboardEvent} */ event) => this.#keyOnTab(event, other),
                },
                title,
            ),
        );
        fill(this.tabs, buttons);
        let panel = this.panels.get(tab);
        if (!panel) {
            panel = h("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${tab}` });
            this.panels.set(tab, panel);
            void this.#fill(tab, panel);
        }
        fill(this.body, panel);
        this.#reveal();
    }

    /** @param {Tab} tab */
    #addressOf(tab) {
        return page({ ...this.key, attempt: this.wanted, view: tab });
    }

    /**
     * @param {MouseEvent | KeyboardEvent} event
     * @param {Tab} tab
     */
    #choose(event, tab) {
        if (event.ctrlKey || event.metaKey || event.shiftKey) {
            return;
        }
        event.preventDefault();
        history.pushState(null, "", this.#addressOf(tab));
        this.showTab(tab);
        document.getElementById(`tab-${tab}`)?.focus({ preventScroll: true });
    }

    /**
     * @param {KeyboardEvent} event
     * @param {Tab} tab
     */
    #keyOnTab(event, tab) {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        const at = TABS.findIndex((other) => other.tab === tab);
        const next = step && TABS[(at + step + TABS.length) % TABS.length];
        if (next) {
            this.#choose(event, next.tab);
        }
    }

    /** Makes a panel again when it is shown next. @param {Tab} tab */
    #forget(tab) {
        const panel = this.panels.get(tab);
        this.panels.delete(tab);
        if (panel?.isConnected) {
            this.showTab(tab);
        }
    }

    /**
     * @param {Tab} tab
     * @param {HTMLElement} panel
     */
    async #fill(tab, panel) {
        fill(panel, h("p", { class: "loading" }, "Loading…"));
        try {
            const content = { changes: () => this.#changes(), text: () => this.#text(), log: () => this.#log(), steps: () => this.#steps(), files: () => this.#files() }[tab];
            fill(panel, await content());
            this.#reveal();
        } catch (error) {
            fill(panel, failed(error));
        }
    }

    /** What tells whether there is a plan, or may be one. */
    #whyNoPlan() {
        return JSON.stringify([this.#planOf(), this.attempt.live, this.mayChange]);
    }

    /** @returns {Child} */
    #noPlan() {
        if (this.attempt.live === "lost") {
            const silence = ["The runner was last heard of ", when(this.#heard()), ". What it has stored is here."];
            return notice("This run has stored no plan", h("p", null, silence));
        }
        return this.mayChange ? notice("The plan is not there yet", h("p", null, "It appears here as soon as the run has stored it.")) : notice("This run has no plan");
    }

    /** @returns {Promise<Child>} */
    async #changes() {
        const plan = this.#planOf();
        if (!plan) {
            return this.#noPlan();
        }
        const changes = await jsonIfAny("changes", { ...plan }, exactly);
        if (!changes) {
            return notice("This plan has no changes in JSON", h("p", null, "Its text may be there: ", h("a", { href: this.#addressOf("text") }, "plan text")));
        }
        this.plan = new PlanView(changes);
        return this.plan.element;
    }

    /** @returns {Promise<Child>} */
    async #text() {
        const plan = this.#planOf();
        if (!plan) {
            return this.#noPlan();
        }
        try {
            const url = api("plans", { ...plan, format: "pretty" });
            const response = await get(url);
            const view = new LogView({ steps: false, name: "plan" });
            view.isFollowing = false;
            view.end.hidden = true;
            for await (const text of texts(response)) {
                view.add(text);
            }
            view.finish();
            fill(view.status, h("a", { href: url, download: "plan.txt" }, "Download"));
            this.text = view;
            return view.element;
        } catch (error) {
            if (error instanceof Refusal && error.status === 404) {
                return notice("This plan has no text");
            }
            throw error;
        }
    }

    /** @returns {Promise<Child>} */
    async #log() {
        this.following.abort();
        this.following = new AbortController();
        const view = new LogView({ steps: true, name: "log" });
        this.log = view;
        view.isFollowing = Boolean(this.attempt.live) && !location.hash;
        view.end.hidden = !this.attempt.live;
        const say = (/** @type {Child} */ text) => fill(view.status, text);
        const empty = h("p", { class: "empty" });
        view.element.append(empty);
        this.sayLive = () => say(this.attempt.live ? outcome(this.attempt.live) : "loading…");
        const listener = {
            text: (/** @type {string} */ text) => {
                empty.remove();
                view.add(text);
            },
            restart: () => view.clear(),
            connected: this.sayLive,
            waiting: (/** @type {"none" | "lost"} */ why, /** @type {number} */ seconds) =>
                why === "none"
                    ? fill(empty, "The log is empty so far. It appears here as soon as the run writes it.")
                    : say(`The connection is lost: trying again in ${seconds} s.`),
        };
        const download = h("a", { href: this.#fileAddress("run.log"), download: "run.log" }, "Download");
        const finish = (/** @type {string} */ end) => {
            this.sayLive = () => {};
            view.finish();
            view.end.hidden = true;
            view.setDurations(this.#durations());
            fill(empty, end === "missing" ? "This attempt has no log." : "The log is empty.");
            say(end === "complete" && download);
        };
        follow(this.#query(), listener, () => this.mayChange, this.following.signal).then(finish, (error) => {
            if (error.name === "AbortError") {
                return;
            }
            view.element.prepend(failed(error));
            say("");
        });
        return view.element;
    }

    #durations() {
        return this.record.steps.map(({ name, seconds }) => ({ name, seconds: duration(seconds) }));
    }

    /** @returns {Child} */
    #steps() {
        const { steps } = this.record;
        if (steps.length === 0) {
            return notice(this.attempt.live ? "The steps are not known yet" : "This run has no report of its steps", this.attempt.live && h("p", null, "The report is stored at the end of the run."));
        }
        const longest = Math.max(...steps.map(({ seconds }) => seconds), 0.001);
        const cell = (/** @type {string} */ label, /** @type {Child[]} */ ...children) => h("td", { "data-label": label }, children);
        const row = (/** @type {import("./record.js").Step} */ { name, seconds, cpu, memory, tries, exit }) => {
            const bar = h("meter", { min: 0, max: longest, value: seconds, "aria-label": `duration of ${visibleText(name)}` });
            const isFine = exit === 0 || exit === null;
            return h(
                "tr",
                null,
                cell("Step", foreign(name)),
                cell("Duration", h("span", { class: "amount" }, duration(seconds)), bar),
                cell("CPU", cpu !== null && duration(cpu)),
                cell("Peak memory", memory !== null && bytes(memory)),
                cell("Tries", tries),
                cell("Exit code", isFine ? exit : badge(String(exit), exit === 2 && name === "plan" ? "update" : "delete")),
            );
        };
        return table("Steps", ["Step", "Duration", "CPU", "Peak memory", "Tries", "Exit code"], steps.map(row));
    }

    /** @returns {Child} */
    #files() {
        const files = this.attempt.artifacts;
        if (files.length === 0) {
            return notice("This attempt has no files yet");
        }
        const row = (/** @type {{name: string, size: number, modified: string}} */ file) =>
            h(
                "tr",
                null,
                h("td", { "data-label": "File" }, h("a", { href: this.#fileAddress(file.name), download: file.name }, foreign(file.name))),
                h("td", { "data-label": "Size" }, bytes(file.size)),
                h("td", { "data-label": "Stored" }, when(file.modified)),
            );
        return table("Files", ["File", "Size", "Stored"], files.map(row));
    }

    /** @param {string} name */
    #fileAddress(name) {
        const format = { "plan.bin": "bin", "plan.json": "json", "pretty.plan": "pretty", "short.diff": "short" }[name];
        if (format) {
            return api("plans", { ...this.#query(), format });
        }
        return name === "run.log" ? api("logs", { ...this.#query(), follow: "true" }) : api("artifacts", { ...this.#query(), name });
    }

    /** Shows what the fragment of the address names. */
    #reveal() {
        if (!location.hash) {
            return;
        }
        let fragment = location.hash.slice(1);
        try {
            fragment = decodeURIComponent(fragment);
        } catch {
            // It is no link of this page.
        }
        if (this.tab === "changes") {
            this.plan?.reveal(fragment);
        } else if (this.tab === "log") {
            this.log?.reveal(fragment);
        } else if (this.tab === "text") {
            this.text?.reveal(fragment);
        }
    }
}

/**
 * @param {string} label
 * @param {string[]} columns
 * @param {HTMLElement[]} rows
 */
function table(label, columns, rows) {
    const head = h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)));
    return h("div", { class: "table" }, h("table", { "aria-label": label }, h("thead", null, head), h("tbody", null, rows)));
}
