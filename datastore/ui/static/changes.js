// The changes of a plan as a tree: modules, in each the actions, in each the resources. It knows no elements.

/**
 * @typedef {{path: (string | number)[], before?: unknown, after?: unknown, sensitive?: boolean, unknown?: boolean,
 *   replaces?: boolean, before_length?: number, after_length?: number}} Attribute
 * @typedef {{address: string, module: string, mode: string, type: string, name: string, index: string | number | null,
 *   actions: string[], reason: string | null, previous_address: string | null, importing: unknown,
 *   deposed: string | null, too_large?: boolean, attributes: Attribute[]}} Resource
 * @typedef {{name: string, actions: string[], before?: unknown, after?: unknown, sensitive?: boolean, unknown?: boolean,
 *   too_large?: boolean}} Output
 * @typedef {{address: string, status: string, problems: string[]}} Check
 * @typedef {{version: number, counts: Record<string, number>, resources: Resource[], drift: Resource[], outputs: Output[],
 *   checks: Check[], errored?: boolean, truncated: {resources: number, attributes: number} | null}} Changes
 */

/**
 * What happens to a resource: the most dangerous first. `other` is an action that the page does not know, `none` is no change.
 * @typedef {"delete" | "replace" | "update" | "create" | "forget" | "read" | "move" | "import" | "invoke" | "other" | "none"} Kind
 */

/** @type {{kind: Kind, sign: string, word: string}[]} */
export const KINDS = [
    { kind: "delete", sign: "−", word: "delete" },
    { kind: "replace", sign: "±", word: "replace" },
    { kind: "update", sign: "~", word: "update" },
    { kind: "create", sign: "+", word: "create" },
    { kind: "forget", sign: "∅", word: "forget" },
    { kind: "read", sign: "‹", word: "read" },
    { kind: "move", sign: "→", word: "move" },
    { kind: "import", sign: "↓", word: "import" },
    { kind: "invoke", sign: "▸", word: "run" },
    { kind: "other", sign: "?", word: "other action" },
];

/** The kinds that a plan names as actions. @type {Kind[]} */
const ACTIONS = ["delete", "update", "create", "forget", "read", "invoke"];

/**
 * One change of a list, and what is known of it beforehand.
 * @typedef {{id: string, kind: Kind, kinds: Kind[], short: string, resource: Resource, text?: string}} Change
 */

/**
 * One row of the list. `level` is that of its heading, `depth` how far it is indented.
 * @typedef {{type: "section", title: string, key: string, count: number, isOpen: boolean}
 *   | {type: "module", title: string, key: string, level: number, depth: number, counts: Map<Kind, number>, isOpen: boolean}
 *   | {type: "group", kind: Kind, key: string, level: number, depth: number, count: number, isOpen: boolean}
 *   | {type: "change", change: Change, depth: number}
 *   | {type: "output", output: Output, id: string}
 *   | {type: "check", check: Check, id: string}} Row
 */

/**
 * @param {string[]} actions
 * @returns {Kind}
 */
export function action(actions) {
    if (actions.length === 2 && actions.includes("create") && (actions.includes("delete") || actions.includes("forget"))) {
        return "replace";
    }
    const [only] = actions.length === 1 ? actions : [];
    return only === "no-op" ? "none" : (ACTIONS.find((kind) => kind === only) ?? "other");
}

/**
 * The name of an action that the page does not know.
 * @param {string[]} actions
 */
export function actionName(actions) {
    return actions.join(" and ") || "no action named";
}

/**
 * @param {Resource} resource
 * @param {string} prefix
 * @returns {Change}
 */
function change(resource, prefix) {
    const main = action(resource.actions);
    /** @type {Kind[]} */
    const kinds = main === "none" ? [] : [main];
    if (resource.previous_address) {
        kinds.push("move");
    }
    if (importedId(resource) !== null) {
        kinds.push("import");
    }
    const { address, module, deposed } = resource;
    const short = module && address.startsWith(`${module}.`) ? address.slice(module.length + 1) : address;
    const id = `${prefix}${address}${deposed ? ` (deposed ${deposed})` : ""}`;
    return { id, kind: kinds[0] ?? "none", kinds, short, resource };
}

/**
 * By what a resource is imported: its ID, or its identity as JSON.
 * @param {Resource} resource
 */
export function importedId({ importing }) {
    if (importing === null || importing === undefined) {
        return null;
    }
    return typeof importing === "string" ? importing : JSON.stringify(importing);
}

/**
 * The steps of a module's address: `module.a["x.y"].module.b` has two.
 * @param {string} address
 */
export function moduleSteps(address) {
    const steps = [];
    let [start, isQuoted] = [0, false];
    for (let at = 0; at < address.length; at += 1) {
        if (address[at] === "\\" && isQuoted) {
            at += 1;
        } else if (address[at] === '"') {
            isQuoted = !isQuoted;
        } else if (!isQuoted && at > start && address.startsWith(".module.", at)) {
            steps.push(address.slice(start, at));
            start = at + 1;
        }
    }
    return address ? [...steps, address.slice(start)] : [];
}

/** @typedef {{address: string, children: Map<string, Module>, changes: Change[]}} Module */

/**
 * @param {Change[]} changes
 * @returns {Module}
 */
function modules(changes) {
    /** @type {Module} */
    const root = { address: "", children: new Map(), changes: [] };
    /** @type {Map<string, Module>} */
    const known = new Map([["", root]]);
    for (const change of changes) {
        const { module } = change.resource;
        let found = known.get(module);
        if (!found) {
            found = moduleSteps(module).reduce(child, root);
            known.set(module, found);
        }
        found.changes.push(change);
    }
    return root;
}

/**
 * A module within another.
 * @param {Module} parent
 * @param {string} step
 */
function child(parent, step) {
    let found = parent.children.get(step);
    if (!found) {
        const address = parent.address ? `${parent.address}.${step}` : step;
        found = { address, children: new Map(), changes: [] };
        parent.children.set(step, found);
    }
    return found;
}

/** The changes of a plan, what is shown of them, and what is open. */
export class Tree {
    /** @param {Changes} changes */
    constructor(changes) {
        this.changes = changes;
        this.resources = changes.resources.map((resource) => change(resource, ""));
        this.drift = (changes.drift ?? []).map((resource) => change(resource, "drift: "));
        /** The keys of modules, groups and sections that are closed. @type {Set<string>} */
        this.closed = new Set();
        /** The ids of changes, outputs and checks that are open. @type {Set<string>} */
        this.open = new Set();
        /** @type {Set<Kind>} */
        this.kinds = new Set();
        /** @type {string[]} */
        this.words = [];
        /** How many of each are shown. */
        this.shown = { resources: 0, drift: 0, outputs: 0, checks: 0 };
    }

    /** How many changes there are of each kind. */
    counts() {
        /** @type {Map<Kind, number>} */
        const counts = new Map();
        for (const { kinds } of this.resources) {
            for (const kind of kinds) {
                counts.set(kind, (counts.get(kind) ?? 0) + 1);
            }
        }
        return counts;
    }

    /**
     * What a kind is called: an action that the page does not know has its own name.
     * @param {Kind} kind
     */
    wordOf(kind) {
        const others = kind === "other" ? [...this.resources, ...this.drift].filter((change) => change.kind === "other") : [];
        const names = new Set(others.map(({ resource }) => actionName(resource.actions)));
        const [name] = names.size === 1 ? names : [];
        return name ?? KINDS.find((other) => other.kind === kind)?.word ?? "no change";
    }

    /**
     * Shows only what has all of these words.
     * @param {string} text
     */
    search(text) {
        this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    }

    /** The rows that are shown. */
    rows() {
        /** @type {Row[]} */
        const rows = [];
        const resources = this.resources.filter((change) => this.#isShown(change));
        this.shown.resources = resources.length;
        const others = this.#others();
        if (resources.length > 0) {
            this.#section(rows, "Resources", resources.length, others.length > 0, () =>
                this.#module(rows, modules(resources), "", others.length > 0 ? 3 : 2, 0),
            );
        }
        rows.push(...others);
        return rows;
    }

    /** Outputs, checks and drift. */
    #others() {
        /** @type {Row[]} */
        const rows = [];
        const outputs = this.changes.outputs.filter((output) => this.#hasKind([action(output.actions)]) && this.#hasWords(textOfOutput(output)));
        if (outputs.length > 0) {
            this.#section(rows, "Outputs", outputs.length, true, () => {
                rows.push(...outputs.map((output) => /** @type {Row} */ ({ type: "output", output, id: outputId(output) })));
            });
        }
        const checks = (this.changes.checks ?? []).filter((check) => this.kinds.size === 0 && this.#hasWords(textOfCheck(check)));
        if (checks.length > 0) {
            this.#section(rows, "Checks", checks.length, true, () => {
                rows.push(...checks.map((check) => /** @type {Row} */ ({ type: "check", check, id: checkId(check) })));
            });
        }
        const drift = this.drift.filter((change) => this.#isShown(change));
        Object.assign(this.shown, { drift: drift.length, outputs: outputs.length, checks: checks.length });
        if (drift.length > 0) {
            this.#section(rows, "Changed outside of the code", drift.length, true, () =>
                this.#module(rows, modules(drift), "drift: ", 3, 0),
            );
        }
        return rows;
    }

    /**
     * @param {Row[]} rows
     * @param {string} title
     * @param {number} count
     * @param {boolean} hasTitle
     * @param {() => void} fill
     */
    #section(rows, title, count, hasTitle, fill) {
        const key = `section ${title}`;
        const isOpen = !this.closed.has(key);
        if (hasTitle) {
            rows.push({ type: "section", title, key, count, isOpen });
        }
        if (isOpen || !hasTitle) {
            fill();
        }
    }

    /**
     * @param {Row[]} rows
     * @param {Module} module
     * @param {string} prefix
     * @param {number} level
     * @param {number} depth
     */
    #module(rows, module, prefix, level, depth) {
        const hasRow = module.address !== "" || module.children.size > 0;
        // A module without changes of its own, and with one module, needs no row.
        if (module.changes.length > 0 || module.children.size > 1) {
            if (hasRow) {
                const key = `${prefix}module ${module.address}`;
                const isOpen = !this.closed.has(key);
                const title = module.address || "root module";
                rows.push({ type: "module", title, key, level, depth, counts: kindsOf(module), isOpen });
                if (!isOpen) {
                    return;
                }
                depth += module.address ? 1 : 0;
            }
            this.#groups(rows, module, prefix, hasRow ? level + 1 : level, depth);
        }
        for (const child of [...module.children.values()].sort((a, b) => compare(a.address, b.address))) {
            this.#module(rows, child, prefix, level, depth);
        }
    }

    /**
     * @param {Row[]} rows
     * @param {Module} module
     * @param {string} prefix
     * @param {number} level
     * @param {number} depth
     */
    #groups(rows, module, prefix, level, depth) {
        /** @type {Kind[]} */
        const kinds = [...KINDS.map(({ kind }) => kind), "none"];
        for (const kind of kinds) {
            const changes = module.changes.filter((change) => change.kind === kind);
            if (changes.length === 0) {
                continue;
            }
            const key = `${prefix}${kind} ${module.address}`;
            const isOpen = !this.closed.has(key);
            rows.push({ type: "group", kind, key, level, depth, count: changes.length, isOpen });
            if (isOpen) {
                rows.push(...changes.map((change) => /** @type {Row} */ ({ type: "change", change, depth })));
            }
        }
    }

    /** @param {Change} change */
    #isShown(change) {
        return this.#hasKind(change.kinds) && (this.words.length === 0 || this.#hasWords(textOf(change)));
    }

    /** @param {Kind[]} kinds */
    #hasKind(kinds) {
        return this.kinds.size === 0 || kinds.some((kind) => this.kinds.has(kind));
    }

    /** @param {string} text */
    #hasWords(text) {
        const lower = text.toLowerCase();
        return this.words.every((word) => lower.includes(word));
    }

    openAll() {
        const { outputs, checks } = this.changes;
        const changes = [...this.resources, ...this.drift].map(({ id }) => id);
        this.open = new Set([...changes, ...outputs.map(outputId), ...(checks ?? []).map(checkId)]);
        this.closed.clear();
    }

    /** Takes all filters away, and opens what is closed around changes. */
    showAll() {
        this.kinds.clear();
        this.words = [];
        this.closed.clear();
    }

    /**
     * The id of what a link names: by its id, or by the address of a resource or a check.
     * @param {string} link
     */
    find(link) {
        const { outputs, checks } = this.changes;
        const changes = [...this.resources, ...this.drift];
        const ids = [...changes.map(({ id }) => id), ...outputs.map(outputId), ...(checks ?? []).map(checkId)];
        const check = ids.find((id) => id === checkId({ address: link }));
        return ids.find((id) => id === link) ?? changes.find(({ resource }) => resource.address === link)?.id ?? check;
    }
}

/** @param {Output} output */
function outputId(output) {
    return `output.${output.name}`;
}

/** @param {{address: string}} check */
function checkId(check) {
    return `check: ${check.address}`;
}

/** What happens, in the words of badges. @type {Record<Kind, string>} */
const DONE = {
    delete: "deleted",
    replace: "replaced",
    update: "updated",
    create: "created",
    forget: "forget forgotten",
    read: "read",
    move: "moved",
    import: "imported",
    invoke: "invoked run",
    other: "",
    none: "",
};

/**
 * The badges of a change: their text and look, and a title.
 * @param {Change} change
 * @returns {{text: string, look: Kind, title?: string}[]}
 */
export function badgesOf({ kind, resource }) {
    const { actions, attributes, deposed, previous_address, reason } = resource;
    const causes = attributes.filter(({ replaces }) => replaces).map(({ path }) => pathText(path));
    /** @type {[unknown, string, Kind, string?][]} */
    const all = [
        [kind === "other", actionName(actions), "other"],
        [kind === "replace" && causes.length > 0, `because of ${causes.slice(0, 3).join(", ")}`, "replace"],
        [reason === "replace_because_tainted", "tainted", "replace"],
        [previous_address, "moved", "move", `from ${previous_address}`],
        [importedId(resource) !== null, "imported", "import"],
        [deposed, `deposed ${deposed}`, "delete"],
        [kind === "replace" && actions[0] === "create", "created first", "create"],
    ];
    return all.filter(([isShown]) => isShown).map(([, text, look, title]) => ({ text, look, title }));
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

/**
 * What is searched of a change: its addresses, its cause, its badges, and its attributes with their values.
 * @param {Change} change
 */
function textOf(change) {
    if (change.text === undefined) {
        const { address, previous_address, reason, attributes } = change.resource;
        const badges = badgesOf(change).map(({ text }) => text);
        const done = change.kinds.map((kind) => DONE[kind]);
        const values = attributes.map(({ path, before = "", after = "" }) => [pathText(path), before, after]);
        const parts = [address, previous_address, importedId(change.resource), reason, ...badges, ...done, JSON.stringify(values)];
        change.text = parts.join(" ").toLowerCase();
    }
    return change.text;
}

/** @param {Output} output */
function textOfOutput(output) {
    const kind = action(output.actions);
    return [output.name, ...output.actions, DONE[kind], JSON.stringify([output.before, output.after])].join(" ");
}

/** @param {Check} check */
function textOfCheck({ address, status, problems }) {
    return [address, status, ...problems].join(" ");
}

/** @param {Module} module */
function kindsOf(module) {
    /** @type {Map<Kind, number>} */
    const counts = new Map();
    for (const { kind } of module.changes) {
        counts.set(kind, (counts.get(kind) ?? 0) + 1);
    }
    for (const child of module.children.values()) {
        for (const [kind, count] of kindsOf(child)) {
            counts.set(kind, (counts.get(kind) ?? 0) + count);
        }
    }
    return counts;
}

/**
 * @param {string} a
 * @param {string} b
 */
function compare(a, b) {
    return collator.compare(a, b);
}
const collator = new Intl.Collator("en", { numeric: true });

/** Why terraform and tofu do something, in words. @type {Record<string, string>} */
export const REASONS = {
    replace_because_tainted: "it is tainted: an earlier run did not finish creating it",
    replace_because_cannot_update: "what changes cannot be updated in place",
    replace_by_request: "the option -replace names it",
    replace_by_triggers: "something in its replace_triggered_by changes",
    delete_because_no_resource_config: "the configuration no longer has it",
    delete_because_no_module: "the configuration no longer has its module",
    delete_because_wrong_repetition: "the configuration repeats it in another way (count or for_each)",
    delete_because_count_index: "its index is past the count",
    delete_because_each_key: "for_each no longer has its key",
    delete_because_no_move_target: "it was moved to an address that the configuration does not have",
    read_because_config_unknown: "its configuration is known only during the apply",
    read_because_dependency_pending: "something that it depends on changes first",
    read_because_check_nested: "a check reads it at each apply",
};
