//! HCL that terraform accepts and our parser does not. A real terraform decides what is valid.

use support::Sandbox;

use crate::RUNNER;

/// Files with a line break after an operator, with duplicate keys, deep nesting, and other oddities.
fn files() -> Vec<(String, Vec<u8>)> {
    let deep = |open: &str, close: &str, count: usize| {
        format!("{}1{}", open.repeat(count), close.repeat(count))
    };
    let expressions = [
        "{ for k, v in {} : k => true ? 1 :\n 2 }".to_owned(),
        "{ for k, v in {} : k => true\n ? 1\n : 2 }".to_owned(),
        "{ for k, v in {} : k => true &&\n false }".to_owned(),
        "{ for k, v in {} : k => true\n || false }".to_owned(),
        "{ for k, v in {} :\n k =>\n v... if true &&\n !false }".to_owned(),
        "{ a = 1, a = 2 }".to_owned(),
        "{\n  a = 1\n  \"a\" = { b = 1, b = 2 }\n}".to_owned(),
        deep("(", ")", 300),
        deep("[", "]", 1000),
        deep("{ a = ", "}", 300),
        deep("\"${", "}\"", 200),
        format!("{}2", "true ? 1 : ".repeat(300)),
        format!("{}true", "!".repeat(300)),
        format!("{}1", "1 + ".repeat(300)),
        "<<EOF\nEOF\"\n } ${join(\"}\", [])} $${ %%{ \"\n  EOF".to_owned(),
        "<<A\n${upper(<<B\n}\nB\n)}\nA".to_owned(),
        r#""$${ $$${ %%{ \" } $ %""#.to_owned(),
    ];
    let file = |(index, expression): (usize, &String)| {
        let text = format!(
            "locals {{\n  x{index} = {expression}\n}}\nterraform {{\n  required_version = \"!= 0.0.{index}\"\n}}\n"
        );
        (format!("odd{index}.tf"), text.into_bytes())
    };
    let mut files: Vec<_> = expressions.iter().enumerate().map(file).collect();
    files.push((
        "latin.tf".to_owned(),
        b"# caf\xe9\nterraform {\n  required_version = \"!= 0.1.0\"\n}\n".to_vec(),
    ));
    let nest = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let json = format!(
        r#"{{"terraform": {{"required_version": "!= 0.1.1"}}, "terraform": {{"required_version": "!= 0.1.2"}}, "locals": {{"nest": {nest}}}}}"#
    );
    files.push(("duplicate.tf.json".to_owned(), json.into_bytes()));
    files.push((
        "module.tf".to_owned(),
        b"module \"m\" {\n  source = \"./m\"\n  x = { a = 1, a = 2 }\n}\n".to_vec(),
    ));
    files.push((
        "m/m.tf".to_owned(),
        b"variable \"x\" {}\nterraform {\n  required_version = \"!= 0.1.3\"\n}\n".to_vec(),
    ));
    files
}

#[test]
fn hcl_accepted_by_terraform_never_fails_a_run() {
    let sandbox = Sandbox::new(RUNNER);
    let files = files();
    for (name, bytes) in &files {
        sandbox.write(name, "");
        std::fs::write(sandbox.work().join(name), bytes).unwrap();
    }
    let ended = sandbox.run(&["plan"]);
    assert_eq!(ended.code, 0, "terraform itself accepts every file: {ended:?}");

    let ended = sandbox.run(&["resolve", "--json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let resolved = crate::json(ended.stdout.as_bytes());
    let request = resolved["request"].as_str().unwrap();
    let wanted = (0..files.len() - 4).map(|index| format!("!= 0.0.{index}"));
    for constraint in wanted.chain((0..4).map(|index| format!("!= 0.1.{index}"))) {
        assert!(request.split(", ").any(|one| one == constraint), "{constraint}: {request}");
    }
    let warned = |name: &str| ended.stderr.contains(&format!("/{name}:2:"));
    assert!(warned("odd0.tf") && warned("odd5.tf") && warned("odd7.tf"), "{ended:?}");
}
