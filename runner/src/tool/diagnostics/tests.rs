//! Outputs of terraform 1.11.4, tofu 1.9.4 and terragrunt 0.72.5 and 1.0.0 as they were recorded, and of
//! older terraforms in their documented form.

use proptest::strategy::Strategy as _;

use crate::tool::diagnostics::*;

fn lines(output: &str) -> String {
    let read = Diagnostics::read(output.as_bytes()).unwrap();
    read.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_generic_headline_comes_last_and_an_error_counts_once() {
    insta::assert_snapshot!(lines("Initializing the backend...

Error: Terraform encountered problems during initialisation, including problems
with the configuration, described below.

The Terraform configuration must be valid before initialization so that
Terraform can determine which modules and providers need to be installed.


Error: Invalid type specification

  on main.tf line 2, in variable \"a\":
   2:   type = strin

The keyword \"strin\" is not a valid type specification.

Error: Invalid type specification

  on main.tf line 2, in variable \"a\":
   2:   type = strin

The keyword \"strin\" is not a valid type specification.

Error: Duplicate resource \"terraform_data\" configuration

  on main.tf line 8:
   8: resource \"terraform_data\" \"y\" {

A terraform_data resource named \"y\" was already declared at main.tf:4,1-30.
Resource names must be unique per type in each module.
"), @r#"
Invalid type specification (main.tf:2, in variable "a"): The keyword "strin" is not a valid type specification.
Duplicate resource "terraform_data" configuration (main.tf:8): A terraform_data resource named "y" was already declared at main.tf:4,1-30. Resource names must be unique per type in each module.
Terraform encountered problems during initialisation, including problems with the configuration, described below: The Terraform configuration must be valid before initialization so that Terraform can determine which modules and providers need to be installed.
"#);
}

#[test]
fn a_block_has_its_place_its_address_and_its_text_on_one_line() {
    insta::assert_snapshot!(lines("
Planning failed. Terraform encountered an error while generating this plan.


Warning: Check block assertion failed

  on main.tf line 13, in check \"c\":
  13:     condition = var.v == \"y\"
    ├────────────────
    │ var.v is \"x\"

warned

Error: Resource precondition failed

  with module.a.terraform_data.y[\"a, b\"],
  on a/main.tf line 6, in resource \"terraform_data\" \"y\":
   6:       condition = var.v == \"y\"
    ├────────────────
    │ var.v is \"secret\"

This is a rather long error message which goes on and on so that the word
wrapping of terraform at seventy eight columns has something to do, and then:
https://example.com/a/very/long/url/that/cannot/be/wrapped/at/all/because/it/has/no/spaces/in/it/whatsoever.
"), @r#"
Resource precondition failed (a/main.tf:6, in module.a.terraform_data.y["a, b"]): This is a rather long error message which goes on and on so that the word wrapping of terraform at seventy eight columns has something to do, and then: https://example.com/a/very/long/url/that/cannot/be/wrapped/at/all/because/it/has/no/spaces/in/it/whatsoever.
"#);
}

#[test]
fn a_box_with_any_line_inside() {
    insta::assert_snapshot!(lines("text right before
╷
│ Error: Failed to query available provider packages
│ 
│ Could not retrieve the list of available versions for provider
│ nowhere.invalid/foo/foo: provider nowhere.invalid/foo/foo was not found in
│ any of the search locations
│ 
│   - /opt/tf-plugins
╵
╷
│ Error: local-exec provisioner error
│ 
│   with terraform_data.y,
│   on main.tf line 2, in resource \"terraform_data\" \"y\":
│    2:   provisioner \"local-exec\" { command = \"exit 3\" }
│ 
│ Error running command 'exit 3': exit status 3. Output: boo
│ 
│ Error: not a headline
╵
all is over
"), @r#"
Failed to query available provider packages: Could not retrieve the list of available versions for provider nowhere.invalid/foo/foo: provider nowhere.invalid/foo/foo was not found in any of the search locations
local-exec provisioner error (main.tf:2, in terraform_data.y): Error running command 'exit 3': exit status 3. Output: boo
"#);
}

#[test]
fn the_output_of_a_command_is_no_error() {
    let output = "terraform_data.y (local-exec): boo
terraform_data.y (local-exec): Error: fake
Error: fake as well

Error: local-exec provisioner error

  with terraform_data.y,
  on main.tf line 2, in resource \"terraform_data\" \"y\":
   2:   provisioner \"local-exec\" { command = \"echo boo\" }

Error running command 'echo boo': exit status 3.
Output: boo
Error: fake


Apply incomplete
";
    insta::assert_snapshot!(lines(output), @r#"
local-exec provisioner error (main.tf:2, in terraform_data.y): Error running command 'echo boo': exit status 3.
"#);
    let detail = Diagnostics::read(output.as_bytes()).unwrap().0[0].detail.clone();
    assert_eq!(detail.lines().last(), Some("Error: fake"));
}

#[test]
fn terraform_0_11_lists_what_failed() {
    insta::assert_snapshot!(lines("
Error: Error applying plan:

2 error(s) occurred:

* aws_instance.web: 1 error(s) occurred:

* aws_instance.web: Error launching source instance: InvalidAMIID.NotFound
* aws_vpc.main: creating: limit

Terraform does not automatically rollback in the face of errors.
Instead, your Terraform state file has been partially
updated with any resources that successfully completed.
"), @r#"
Error launching source instance: InvalidAMIID.NotFound (aws_instance.web)
creating: limit (aws_vpc.main)
"#);
    insta::assert_snapshot!(lines("Failed to load root config module: Error parsing main.tf: At 1:2: x\n"), @r#"
Failed to load root config module: Error parsing main.tf: At 1:2: x
"#);
}

#[test]
fn an_error_that_terragrunt_repeats_counts_once() {
    for before in
        ["12:30:45.123 ERROR  tofu invocation failed in .\n", "12:30:45.123 INFO   TIP (x): y\n"]
    {
        insta::allow_duplicates! { insta::assert_snapshot!(lines(&format!("
Initializing the backend...
OpenTofu encountered problems during initialization, including problems
with the configuration, described below.

Error: No value for required variable

  on main.tf line 1:
   1: variable \"region\" {{}}

The root module input variable \"region\" is not set, and has no default value.
Use a -var or -var-file command line argument to provide a value for this
variable.
{before}12:30:45.123 ERROR  error occurred:

* Failed to execute \"tofu plan -no-color\" in .
  
  Error: No value for required variable
  
    on main.tf line 1:
     1: variable \"region\" {{}}
  
  The root module input variable \"region\" is not set, and has no default value.
  Use a -var or -var-file command line argument to provide a value for this
  variable.
  
  exit status 1

")), @r#"
No value for required variable (main.tf:1): The root module input variable "region" is not set, and has no default value. Use a -var or -var-file command line argument to provide a value for this variable.
"#); }
    }
}

#[test]
fn terragrunts_own_errors() {
    insta::assert_snapshot!(lines("12:30:45.123 ERROR  Error: Attempt to get attribute from null value


12:30:45.123 ERROR    on ./terragrunt.hcl line 1:

12:30:45.123 ERROR     1: inputs = { x = local.nope }

12:30:45.123 ERROR  

12:30:45.123 ERROR  This value is null, so it does not have any attributes.


12:30:45.123 ERROR  ./terragrunt.hcl:1,21-26: Attempt to get attribute from null value; This value is null, so it does not have any attributes.
12:30:45.123 ERROR  Unable to determine underlying exit code, so Terragrunt will exit with error code 1
"), @r#"
Attempt to get attribute from null value (./terragrunt.hcl:1): This value is null, so it does not have any attributes.
"#);
    insta::assert_snapshot!(lines("12:30:45.123 ERROR  Error: Unknown variable
12:30:45.123 ERROR    on /x/app/terragrunt.hcl line 6:
12:30:45.123 ERROR     6: inputs = { said = dependency.dep.outputs.id }
12:30:45.123 ERROR  There is no variable named \"dependency\".
12:30:45.123 INFO   TIP (debugging-docs): For help, visit https://docs.terragrunt.com
12:30:45.123 ERROR  2 errors occurred:

* /x/dep/terragrunt.hcl is a dependency of /x/app/terragrunt.hcl but detected no outputs.
  
  For more info, see:
  https://docs.terragrunt.com/features/stacks/
  

* /x/app/terragrunt.hcl:6,19-29: Unknown variable; There is no variable named \"dependency\".

"), @r#"
/x/dep/terragrunt.hcl is a dependency of /x/app/terragrunt.hcl but detected no outputs
Unknown variable (/x/app/terragrunt.hcl:6): There is no variable named "dependency".
"#);
}

#[test]
fn units_side_by_side_have_their_own_lines() {
    insta::assert_snapshot!(lines("time=12:30:45 level=stderr prefix=[a] tf-path=tofu msg=╷
time=12:30:45 level=stderr prefix=[b] tf-path=tofu msg=╷
time=12:30:45 level=stderr prefix=[a] tf-path=tofu msg=│ Error: of a
time=12:30:45 level=stderr prefix=[b] tf-path=tofu msg=│ Error: of b
time=12:30:45 level=stderr prefix=[a] tf-path=tofu msg=│ 
time=12:30:45 level=stderr prefix=[a] tf-path=tofu msg=│   on main.tf line 3, in resource \"x\" \"y\":
time=12:30:45 level=stderr prefix=[b] tf-path=tofu msg=│ 
time=12:30:45 level=stderr prefix=[b] tf-path=tofu msg=│ detail of b
"), @r#"
[a] of a (main.tf:3, in resource "x" "y")
[b] of b: detail of b
"#);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut output = format!("\nError: {}\n\n", "x".repeat(1 << 20));
    output.extend((0..20_000).map(|n| format!("detail {n}\n")));
    output.extend((0..1000).map(|n| format!("\n\n\nError: number {n}\n\n")));
    let read = Diagnostics::read(output.as_bytes()).unwrap();
    assert_eq!(read.iter().count(), 100);
    assert!(read.iter().all(|error| error.summary.len() + error.detail.len() <= 16 << 10));
    assert_eq!(lines(""), "");
    assert_eq!(lines("all is well\nNo changes."), "");
}

#[test]
fn output_that_is_not_text_does_not_panic() {
    let bytes = b"\xff\xfe\nError: \xe2\x94\n\n  on \x00 line 99999999999999, in \xff:\n\n\xff";
    assert_eq!(Diagnostics::read(&bytes[..]).unwrap().iter().count(), 0);
}

#[test]
fn the_values_of_a_query_are_not_repeated() {
    let output = "Error: Failed to get state\n\nGET \"https://h/s?token=hunter2&x=1\" (is it up?) \
        https://h/t?hunter2: 403\n";
    let errors = Diagnostics::read(output.as_bytes()).unwrap();
    let error = errors.first().unwrap().to_string();
    assert!(
        error.contains("\"https://h/s?token=***&x=***\" (is it up?) https://h/t?***"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

/// Outputs of terraform 0.11, 0.12 and 1.11, as logs and issues show them.
#[test]
fn blocks_are_found_behind_prefixes_and_colours() {
    let block = [
        "Error: creating VPC: VpcLimitExceeded",
        "",
        "  with module.a.aws_vpc.b[\"x, y\"],",
        "  on main.tf line 3, in resource \"aws_vpc\" \"b\":",
        "   3: resource \"aws_vpc\" \"b\" {",
        "",
        "The maximum number of VPCs has been reached.",
    ];
    let boxed = ["╷"].into_iter().map(str::to_owned);
    let boxed = boxed.chain(block.iter().map(|line| format!("│ {line}")));
    let boxed =
        boxed.chain(["╵".to_owned(), "Error: Process completed with exit code 1.".to_owned()]);
    let boxed = boxed.collect::<Vec<_>>();
    let plain = block.map(str::to_owned).to_vec();
    for prefix in [
        "",
        "2026-05-05T10:00:00.1234567Z ",
        "2026-05-05T10:00:00.123456Z 01O ",
        "[2026-05-05T10:00:00.123Z] ",
        "10:00:00  ",
        "terraform-1  | ",
        "terraform  | ",
        "[terragrunt] ",
        "STDERR terraform: ",
        "\u{1b}[31m",
        "[0m[31m",
    ] {
        for lines in [&boxed, &plain] {
            for end in ["\n", "\r\n"] {
                let text =
                    lines.iter().map(|line| [prefix, line, end].concat()).collect::<String>();
                let read = Diagnostics::read(text.as_bytes()).unwrap();
                let first = read.first().unwrap_or_else(|| panic!("{text}"));
                assert_eq!(
                    first.to_string(),
                    "creating VPC: VpcLimitExceeded (main.tf:3, in module.a.aws_vpc.b[\"x, y\"]): The maximum number of \
                     VPCs has been reached.",
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn the_outer_line_of_terraform_0_11_has_the_complete_address() {
    insta::assert_snapshot!(lines("
Error: Error applying plan:

2 error(s) occurred:

* module.db.aws_instance.web[1]: 1 error(s) occurred:

* aws_instance.web.1: Error launching source instance: Unsupported
\tstatus code: 400, request id: 1
* aws_vpc.main: 1 error(s) occurred:

* aws_vpc.main: creating: limit
"), @r#"
Error launching source instance: Unsupported 	status code: 400, request id: 1 (module.db.aws_instance.web[1])
creating: limit (aws_vpc.main)
"#);
}

#[test]
fn headlines_below_each_other_and_half_copied_boxes_are_read() {
    assert_eq!(lines("Error: a\nError: b\n"), "a\nb");
    assert_eq!(lines("Error: a\n│ \n│ because\n│ of b\n"), "a: because");
    assert_eq!(lines("  ╷\n  │ Error: a\n  │ \n  │ because\n  ╵\n"), "a: because");
    assert_eq!(lines("â”‚ Error: a\nâ”‚\nâ”‚ because\n"), "a: because");
    assert_eq!(lines("\nError: \n\nno headline\n"), "no headline");
}

proptest::proptest! {
    #[test]
    fn any_text_of_such_pieces_is_read_without_a_panic(
        pieces in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::sample::select(vec![
                    "Error: ", "Warning: ", "│", "│ ", "╷", "╵", "\n", "\r\n", "\n\n", "  with a_b.c[\"", "\"],", "  on ",
                    " line 3, in resource \"a_b\" \"c\":", "* a_b.c: 1 error(s) occurred:", "Error applying plan:",
                    "time=1 level=stderr msg=", "12:30:45.1 ERROR  ", "[terragrunt] ", "2026-05-05T10:00:00Z ", "tf  | ",
                    "\x1b[31m", "[31m", "{\"@level\":\"error\",\"@message\":\"Error: ", "\"}", "\\", "\u{feff}", "\t", "occurred:",
                ]).prop_map(str::to_owned),
                proptest::prelude::any::<String>(),
            ],
            0..40,
        ),
    ) {
        let text = pieces.concat();
        for end in [text.len(), text.len() / 2] {
            Diagnostics::read(&text.as_bytes()[..end]).unwrap();
        }
    }
}
