//! `docs/openapi.json`: what every answer and every event of a stream must look like.

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::super::Reply;

const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");

/// The document's schemas by path and, of each, by kind of answer.
pub(super) struct Contract(HashMap<String, PathContract>);

struct PathContract {
    whole: Validator,
    event: Option<Validator>,
    error: Validator,
}

impl Contract {
    /// Reads the `post` operations of these paths.
    pub fn of<'a>(paths: impl Iterator<Item = &'a String>) -> Self {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let contracts = paths.map(|path| (path.clone(), PathContract::read(&document, path)));
        Self(contracts.collect())
    }

    /// Checks an answer; `told` says what it answers.
    pub fn check(&self, path: &str, reply: &Reply, told: &str) {
        let contract = &self.0[path];
        if reply.status != 200 {
            return check(&contract.error, &reply.json(), told);
        }
        if reply.headers["content-type"] == "application/json" {
            return check(&contract.whole, &reply.json(), told);
        }
        let schema = contract.event.as_ref().unwrap_or_else(|| panic!("{path} has no stream: {told}"));
        for event in reply.events() {
            check(schema, &event, told);
        }
    }
}

impl PathContract {
    fn read(document: &Value, path: &str) -> Self {
        let responses = &document["paths"][path]["post"]["responses"];
        let content = &responses["200"]["content"];
        let data = &content["text/event-stream"]["itemSchema"]["properties"]["data"];
        let alternatives = data["anyOf"].as_array().into_iter().flatten();
        let event = std::iter::once(data).chain(alternatives).find_map(|data| data.get("contentSchema"));
        let error = responses["default"]["$ref"].as_str().unwrap().strip_prefix('#').unwrap();
        Self {
            whole: validator(document, &content["application/json"]["schema"]),
            event: event.map(|schema| validator(document, schema)),
            error: validator(
                document,
                &document.pointer(error).unwrap()["content"]["application/json"]["schema"],
            ),
        }
    }
}

/// A schema of the document, with the components that it refers to.
fn validator(document: &Value, schema: &Value) -> Validator {
    assert!(schema.is_object(), "there is no such schema");
    let schema = json!({"allOf": [schema], "components": document["components"]});
    jsonschema::draft202012::new(&schema).unwrap()
}

#[track_caller]
fn check(schema: &Validator, body: &Value, told: &str) {
    if let Err(error) = schema.validate(body) {
        panic!("{error} at {}: {told}\n{body}", error.instance_path());
    }
}
