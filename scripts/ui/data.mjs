// Plans and logs for the test of the page.

const policy = (actions) =>
    JSON.stringify({ Version: "2012-10-17", Statement: [{ Sid: "Read", Effect: "Allow", Action: actions, Resource: "arn:aws:s3:::data/*" }, { Sid: "List", Effect: "Allow", Action: ["s3:ListBucket"], Resource: "arn:aws:s3:::data" }] });

const script = (version) => `#!/bin/sh
set -eu
# Installs the agent.
curl --fail --output /tmp/agent https://packages.example.com/agent-${version}.tar.gz
tar --extract --file /tmp/agent --directory /opt
systemctl enable agent
systemctl start agent
for disk in /dev/vd?; do
    blkid "$disk" || mkfs.ext4 "$disk"
done
echo done
`;

/** A change of a resource, as `terraform show -json` has it. */
export function change(module, type, name, index, actions, before, after, more = {}) {
    const key = index === null ? "" : typeof index === "number" ? `[${index}]` : `[${JSON.stringify(index)}]`;
    const address = `${module ? `${module}.` : ""}${more.mode === "data" ? "data." : ""}${type}.${name}${key}`;
    const { after_unknown = {}, before_sensitive = {}, after_sensitive = {}, replace_paths, importing, ...rest } = more;
    return {
        address,
        ...(module && { module_address: module }),
        mode: "managed",
        type,
        name,
        ...(index !== null && { index }),
        provider_name: "registry.terraform.io/hashicorp/aws",
        ...rest,
        change: { actions, before, after, after_unknown, before_sensitive, after_sensitive, ...(replace_paths && { replace_paths }), ...(importing && { importing }) },
    };
}

/** JSON in which "@1.50@" is the number 1.50: one that JavaScript would write in another way. */
export function json(value) {
    return JSON.stringify(value).replace(/"@([\d.e+-]+)@"/g, "$1");
}

function document(resource_changes, more = {}) {
    return { format_version: "1.2", terraform_version: "1.11.4", resource_changes, output_changes: {}, ...more };
}

/** Values that look the same, or are the same once JavaScript has read them. */
const NUMBERS = {
    before: { serial: "@9007199254740992@", ratio: "@1.50@", list: [1, "@9007199254740992@"], name: "caf\u00e9 am Eck", note: "one\ncaf\u00e9\nthree" },
    after: { serial: "@9007199254740993@", ratio: "@2.50@", list: [1, "@9007199254740993@"], name: "cafe\u0301 am Eck", note: "one\ncafe\u0301\nthree" },
};

/** The kinds of changes that a plan can have, a few of each. */
export function variedPlan() {
    const instance = { ami: "ami-0a1b2c3d4e5f60718", instance_type: "t3.medium", user_data: script("1.9.2"), tags: { Name: "web", Team: "shop" }, root_block_device: [{ volume_size: 20, encrypted: false }] };
    const network = 'module.network["eu-west-1"]';
    return document(
        [
            change("", "aws_instance", "web", 0, ["update"], instance, { ...instance, instance_type: "t3.large", user_data: script("1.10.0"), tags: { Name: "web", Team: "platform", "cost center": "4711" } }),
            change("", "aws_instance", "web", 1, ["delete", "create"], { ...instance, id: "i-0ff1ce" }, { ...instance, ami: "ami-0ffffffffffffffff", root_block_device: [{ volume_size: 40, encrypted: true }] }, { after_unknown: { id: true }, replace_paths: [["ami"], ["root_block_device", 0, "encrypted"]], action_reason: "replace_because_cannot_update" }),
            change("", "aws_instance", "batch", null, ["create", "delete"], { ...instance, id: "i-0badc0de" }, instance, { after_unknown: { id: true }, action_reason: "replace_because_tainted" }),
            change("", "aws_iam_policy", "reader", null, ["update"], { name: "reader", policy: policy(["s3:GetObject"]) }, { name: "reader", policy: policy(["s3:GetObject", "s3:GetObjectVersion", "s3:DeleteObject"]) }),
            change("", "aws_db_instance", "main", null, ["update"], { engine_version: "15.4", password: "old", storage: 100 }, { engine_version: "15.6", password: "new", storage: 200 }, { before_sensitive: { password: true }, after_sensitive: { password: true } }),
            change("", "aws_s3_bucket", "logs", null, ["delete"], { bucket: "logs-2019", force_destroy: false, tags: { Team: "shop" } }, null, { action_reason: "delete_because_no_resource_config" }),
            change("", "aws_s3_bucket", "archive", null, ["forget"], { bucket: "archive" }, null),
            change("", "aws_s3_bucket", "adopted", null, ["no-op"], { bucket: "adopted" }, { bucket: "adopted" }, { importing: { id: "adopted" } }),
            change("", "aws_route53_zone", "main", null, ["no-op"], { name: "example.com" }, { name: "example.com" }, { previous_address: "aws_route53_zone.primary" }),
            change("", "aws_ami", "latest", null, ["read"], null, { owners: ["self"] }, { mode: "data", after_unknown: { id: true }, action_reason: "read_because_config_unknown" }),
            change(network, "aws_subnet", "private", "a", ["create"], null, { cidr_block: "10.0.1.0/24", map_public_ip_on_launch: false, tags: { Name: "private-a" } }, { after_unknown: { id: true, arn: true } }),
            change(network, "aws_subnet", "private", "b", ["create"], null, { cidr_block: "10.0.2.0/24", map_public_ip_on_launch: false, tags: { Name: "private-b" } }, { after_unknown: { id: true, arn: true } }),
            change(`${network}.module.gateway`, "aws_nat_gateway", "this", null, ["update"], { connectivity_type: "public", tags: {} }, { connectivity_type: "public", tags: { Name: "nat" } }),
            change("", "aws_security_group", "old", null, ["delete"], { name: "old" }, null, { deposed: "byebye01" }),
            change("", "example_thing", "odd", null, ["explode"], NUMBERS.before, NUMBERS.after),
        ],
        {
            action_invocations: [{ address: "action.aws_lambda_invoke.notify", type: "aws_lambda_invoke", name: "notify", lifecycle_action_trigger: { triggering_resource_address: "aws_instance.web[1]", action_trigger_event: "AfterCreate" } }],
            resource_drift: [change("", "aws_instance", "web", 0, ["update"], { ...instance, tags: { Name: "web" } }, { ...instance, tags: { Name: "web", Team: "shop" } })],
            output_changes: {
                address: { actions: ["update"], before: "10.0.0.4", after: "10.0.0.5", after_unknown: false, before_sensitive: false, after_sensitive: false },
                password: { actions: ["create"], before: null, after: "secret", after_unknown: false, before_sensitive: true, after_sensitive: true },
            },
            checks: [
                { address: { kind: "check", name: "health", to_display: "check.health" }, status: "fail", instances: [{ address: { to_display: "check.health" }, status: "fail", problems: [{ message: "https://example.com answers 503" }] }] },
                { address: { kind: "resource", to_display: "aws_instance.web" }, status: "pass", instances: [] },
            ],
        },
    );
}

/** A plan with 5,000 changes in 41 modules. */
export function largePlan() {
    const actions = [["create"], ["create"], ["create"], ["update"], ["update"], ["delete"], ["delete", "create"]];
    const changes = [];
    for (let at = 0; at < 5000; at += 1) {
        const region = ["eu-west-1", "eu-central-1", "us-east-1", "ap-south-1"][at % 4];
        const module = at % 50 === 0 ? "" : `module.region["${region}"].module.cluster[${Math.floor(at / 4) % 10}]`;
        const action = actions[at % actions.length];
        const values = (version) => ({ name: `service-${at}`, image: `registry.example.com/team/service-${at % 40}:1.${version}.0`, replicas: (at % 5) + version, environment: { LOG_LEVEL: version ? "debug" : "info", PORT: "8080" }, policy: policy(version ? ["s3:GetObject", "s3:PutObject"] : ["s3:GetObject"]) });
        const isReplaced = action.length === 2;
        changes.push(
            change(module, ["aws_ecs_service", "aws_iam_role", "aws_security_group_rule", "aws_route53_record"][at % 4], `service_${at % 60}`, at, action, action[0] === "create" ? null : values(0), action[0] === "delete" && !isReplaced ? null : values(1), isReplaced ? { replace_paths: [["image"]], action_reason: "replace_because_cannot_update" } : {}),
        );
    }
    return document(changes);
}

const HOSTILE = '<script>document.title = "broken"</script><img src=x onerror=document.title="broken">';
const BIDI = "access_level\u202e\u2066 // admin only\u2069\u2066";

/** A plan whose every text wants to be more than text. */
export function hostilePlan() {
    return document(
        [
            change("", "aws_instance", "x", HOSTILE, ["update"], { [HOSTILE]: HOSTILE, comment: "user" }, { [HOSTILE]: `${HOSTILE}!`, comment: BIDI, zero: "pay\u200bpal", ansi: "\u001b[31mred\u001b[0m", control: "a\u0007b\u0000c" }),
            change(`module.a["${"long-".repeat(60)}"]`, "aws_instance", "__proto__", null, ["create"], null, { constructor: "toString", ["__proto__x"]: "\u2028line", blob: "x".repeat(100_000), json: '{"a":1,"a":2,"n":12345678901234567890}', deep: JSON.parse(`${'{"a":'.repeat(40)}1${"}".repeat(40)}`) }),
            change("", "aws_instance", "javascript", "javascript:alert(1)", ["delete"], { link: "javascript:alert(1)", html: "</pre></div><h1>gone</h1>" }, null, { action_reason: "constructor" }),
        ],
        { output_changes: { [HOSTILE]: { actions: ["create"], before: null, after: HOSTILE, after_unknown: false, before_sensitive: false, after_sensitive: false } } },
    );
}

/** A log with what terminals interpret, two lines of 10 MB, and lines without a visible character. */
export function hostileLog() {
    const lines = [
        "Initializing the backend...",
        "Terraform has been successfully initialized!",
        "",
        HOSTILE,
        "\u001b[1m\u001b[31mError:\u001b[0m\u001b[1m bold red\u001b[0m plain \u001b[38;5;2mgreen\u001b[0m \u001b[38;2;1;2;3mtrue colour\u001b[0m",
        "\u001b]0;a title\u0007\u001b]8;;javascript:alert(1)\u001b\\a link\u001b]8;;\u001b\\ \u001b[2J\u001b[10Acleared",
        "safe\rhidden by a carriage return",
        `bidi: ${BIDI}`,
        `zero width: pay\u200bpal, tag characters: \u{e0041}\u{e0042}`,
        "x".repeat(10_000_000),
        `${"wort ".repeat(2_000_000)}`,
        "\u0000\u0001\u0002 controls",
        "the last line",
    ];
    return lines.join("\n");
}

/** A log of this many lines, with two steps. */
export function longLog(lines) {
    const text = ["terraform 1.11.4 (on PATH)", "Initializing the backend...", "Initializing provider plugins...", "- Installed hashicorp/aws v5.100.0 (signed by HashiCorp)", "Terraform has been successfully initialized!", ""];
    for (let at = text.length; at < lines; at += 1) {
        text.push(`aws_instance.web[${at}]: Refreshing state... [id=i-${at.toString(16).padStart(12, "0")}]`);
    }
    return `${text.join("\n")}\n`;
}

/** The text of a plan, as `terraform show` prints it, in short. */
export function prettyPlan(plan) {
    const lines = ["Terraform will perform the following actions:", ""];
    for (const { address, type, name, change } of plan.resource_changes.slice(0, 5000)) {
        const sign = { create: "+", update: "~", delete: "-" }[change.actions.length > 1 ? "" : change.actions[0]] ?? "-/+";
        lines.push(`  # ${address} will change: ${change.actions.join(" and ")}`, `${sign.padStart(3)} resource "${type}" "${name}" {`);
        for (const [key, value] of Object.entries(change.after ?? change.before ?? {})) lines.push(`      ${sign} ${key} = ${json(value)}`);
        lines.push("    }", "");
    }
    return lines.join("\n");
}

/** A report of a run, as the runner stores it. */
export function report(more = {}) {
    return {
        version: 1,
        action: "plan",
        outcome: "changes",
        exit: 0,
        class: null,
        message: null,
        next: null,
        tool: { name: "tofu", version: "1.10.1", sha256: "00", source: "release" },
        revision: "0d4f3a12c5e9b7a6f8d1e2c3b4a5968778695a4b",
        plan: { sha256: "00", run: "r", attempt: 0, counts: { create: 3, update: 4, delete: 3 } },
        started: new Date(Date.now() - 4 * 60_000).toISOString(),
        steps: [
            { name: "init", seconds: 12.43, exit: 0, attempts: 2, rss_peak: 260046848, cpu_seconds: 6.1 },
            { name: "plan", seconds: 184.2, exit: 0, attempts: 1, rss_peak: 1260046848, cpu_seconds: 240.5 },
            { name: "show json", seconds: 3.1, exit: 0, attempts: 1, rss_peak: 410046848, cpu_seconds: 2.9 },
            { name: "show", seconds: 2.2, exit: 0, attempts: 1, rss_peak: 390046848, cpu_seconds: 2.1 },
        ],
        state_lock: "free",
        ...more,
    };
}
