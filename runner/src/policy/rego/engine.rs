//! Evaluates Rego. This is the only module that knows the engine; it runs in the worker.
//!
//! Everything that is not clear is an error: a policy that says nothing by mistake must not allow a plan.

use std::io::BufRead;

use regorus::{Engine, Value};

use crate::policy::rego::calls::Modules;
use crate::policy::rego::question::{Answer, Document, Messages, Question};

/// The package whose rules decide.
pub(super) const PACKAGE: &str = "main";

/// Answers a question.
pub(super) fn answer(question: impl BufRead) -> Answer {
    let answered = Question::read(question)
        .map_err(|error| error.to_string())
        .and_then(|(question, plan)| messages(&question, plan));
    match answered {
        Ok(Messages { denials, warnings }) => Answer::Messages { denials, warnings },
        Err(reason) => Answer::Invalid(reason),
    }
}

fn messages(question: &Question, plan: Option<String>) -> Result<Messages, String> {
    let mut engine = Engine::new();
    engine.set_rego_v0(question.is_v0);
    // A builtin that fails would otherwise leave its rule undefined, and the plan allowed.
    engine.set_strict_builtin_errors(true);
    // They are not shown.
    engine.set_gather_prints(true);
    for module in &question.modules {
        let added = engine.add_policy(module.name.clone(), module.text.clone());
        added.map_err(|error| located(&error.to_string(), &module.name))?;
    }
    for document in &question.data {
        add_document(&mut engine, document)?;
    }
    let ast = engine.get_ast_as_json().map_err(|error| error.to_string())?;
    let rules = Modules::read(&ast)?.rules(PACKAGE)?;
    // It compiles all modules.
    engine.eval_query("true".to_owned(), false).map_err(|error| located(&error.to_string(), ""))?;
    let mut messages = Messages::default();
    let Some(plan) = plan else { return Ok(messages) };
    let input = Value::from_json_str(&plan).map_err(|error| format!("the plan: {error}"))?;
    drop(plan);
    engine.set_input(input);
    for rule in rules {
        let value = engine.eval_rule(format!("data.{PACKAGE}.{rule}"));
        let value = value.map_err(|error| located(&error.to_string(), ""))?;
        let to =
            if rule.starts_with("warn") { &mut messages.warnings } else { &mut messages.denials };
        collect(&rule, &value, to)?;
        // What is printed takes memory.
        drop(engine.take_prints());
    }
    Ok(messages)
}

/// Adds a document to `data`, below the names of its directories.
fn add_document(engine: &mut Engine, document: &Document) -> Result<(), String> {
    let Document { name, below, text } = document;
    let invalid = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let is_json = std::path::Path::new(name).extension().is_some_and(|of| of == "json");
    let parse = if is_json { Value::from_json_str } else { Value::from_yaml_str };
    let value = parse(text).map_err(|error| invalid(&error))?;
    if value.as_object().is_err() {
        return Err(invalid(&"data is an object: its keys are names in `data`"));
    }
    let nested = below.iter().rev().fold(value, |value, name| {
        let mut object = Value::new_object();
        if let Ok(fields) = object.as_object_mut() {
            fields.insert(Value::from(name.as_str()), value);
        }
        object
    });
    engine.add_data(nested).map_err(|error| invalid(&error))
}

/// Collects what a rule has found: a set, list or object of texts, or of objects with a text `msg`.
fn collect(rule: &str, value: &Value, to: &mut Vec<String>) -> Result<(), String> {
    let results: Vec<&Value> = match value {
        Value::Undefined => Vec::new(),
        Value::Set(set) => set.iter().collect(),
        Value::Array(list) => list.iter().collect(),
        Value::Object(fields) => fields.iter().map(|(_, value)| value).collect(),
        _ => {
            return Err(format!(
                "the rule {rule} is {}, not a set of messages: write `{rule} contains MESSAGE if {{ ... }}`",
                kind(value)
            ));
        }
    };
    for result in results {
        let text = match result {
            Value::String(text) => Some(text),
            Value::Object(fields) => match fields.get(&Value::from("msg")) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            },
            _ => None,
        };
        let text = text.ok_or_else(|| {
            format!(
                "a result of the rule {rule} is {}: it must be a text, or an object with a text `msg`",
                kind(result)
            )
        })?;
        to.push(text.to_string());
    }
    Ok(())
}

/// What a value is. The value itself may be sensitive.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Set(_) => "a set",
        Value::Object(_) => "an object without it",
        Value::Undefined => "undefined",
    }
}

/// The engine's message on one line, which begins with file and line: `main.rego:3:7: ...`.
fn located(text: &str, name: &str) -> String {
    let place = text.lines().find_map(|line| line.trim().strip_prefix("--> "));
    let reason = text.split_once("\nerror: ").map(|(_, reason)| reason.trim());
    match (place, reason) {
        (Some(place), Some(reason)) => format!("{place}: {reason}"),
        _ if name.is_empty() => text.trim().to_owned(),
        _ => format!("{name}: {}", text.trim()),
    }
}
