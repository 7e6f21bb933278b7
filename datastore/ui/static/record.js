// The report of a run (`run.json`) and the status of a layer (`status.json`), as runners of any version, or others, have stored them: a
// field that is missing or of another type is left out.

/**
 * @typedef {{name: string, seconds: number, cpu: number | null, memory: number | null, tries: number | null, exit: number | null}} Step
 * @typedef {{summary: string, detail: string, place: string}} ToolError
 * @typedef {{action: string, outcome: string, class: string, message: string, next: string, revision: string, tool: string,
 *   started: string, counts: Record<string, number> | null, plan: {run: string, attempt: number} | null,
 *   steps: Step[], errors: ToolError[]}} Report
 * @typedef {{status: string, message: string, stale: string, ended: string, lastSuccess: string, failedInARow: number}} Status
 */

/** @param {any} value */
function text(value) {
    return typeof value === "string" ? value : "";
}

/** @param {any} value */
function number(value) {
    return typeof value === "number" ? value : null;
}

/**
 * @param {any} value
 * @returns {any[]}
 */
function list(value) {
    return Array.isArray(value) ? value.filter((item) => typeof item === "object" && item !== null) : [];
}

/** @param {any} tool */
function program(tool) {
    return text(tool?.name) && `${tool.name} ${text(tool.version)}`.trim();
}

/**
 * Whether the report of an attempt may still come: a run stores it after its log.
 * @param {{artifacts: {name: string, modified: string}[]}} attempt
 */
export function awaitsReport({ artifacts }) {
    const newest = Math.max(...artifacts.map(({ modified }) => Date.parse(modified)));
    return artifacts.every(({ name }) => name !== "run.json") && Date.now() - newest < 10 * 60 * 1000;
}

/**
 * @param {any} json
 * @returns {Report}
 */
export function report(json) {
    const counts = Object.entries(json?.plan?.counts ?? {}).filter(([, count]) => typeof count === "number");
    const [run, attempt] = [text(json?.plan?.run), number(json?.plan?.attempt)];
    return {
        action: text(json?.action),
        outcome: text(json?.outcome),
        class: text(json?.class),
        message: text(json?.message),
        next: text(json?.next),
        revision: text(json?.revision),
        tool: [program(json?.terragrunt), program(json?.tool)].filter(Boolean).join(" with "),
        started: text(json?.started),
        counts: json?.plan?.counts ? Object.fromEntries(counts) : null,
        plan: run && attempt !== null ? { run, attempt } : null,
        steps: list(json?.steps).map((step) => ({
            name: text(step.name),
            seconds: number(step.seconds) ?? 0,
            cpu: number(step.cpu_seconds),
            memory: number(step.rss_peak),
            tries: number(step.attempts),
            exit: number(step.exit),
        })),
        errors: list(json?.errors).map(({ summary, detail, file, line, address }) => ({
            summary: text(summary),
            detail: text(detail),
            place: [text(file) && text(file) + (number(line) === null ? "" : `:${line}`), text(address)].filter(Boolean).join(", "),
        })),
    };
}

/**
 * @param {any} json
 * @returns {Status}
 */
export function status(json) {
    return {
        status: text(json?.status),
        message: text(json?.message),
        stale: text(json?.stale),
        ended: text(json?.ended),
        lastSuccess: text(json?.last_success),
        failedInARow: number(json?.failed_in_a_row) ?? 0,
    };
}
