//! The JSON Schema of the tool, made from the request types, for models and for the OpenAPI document.

use super::NAME;
use super::request::{Inspect, List, Patch, Read, Request, Search};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, Object, OneOfBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema (2020-12) of its input: one object, whose fields depend on `operation`.
    #[schema(value_type = Object)]
    pub input_schema: Value,
}

/// All tools of a coding session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolList {
    /// The tools.
    pub tools: Vec<Tool>,
}

/// The tools that this version has.
pub fn tools() -> ToolList {
    ToolList { tools: vec![files()] }
}

/// Each operation: its name, and the schema of its fields.
fn operations() -> Vec<(&'static str, Object)> {
    [
        ("inspect", Inspect::schema()),
        ("list", List::schema()),
        ("search", Search::schema()),
        ("read", Read::schema()),
        ("patch", Patch::schema()),
    ]
    .into_iter()
    .filter_map(|(name, schema)| match schema {
        RefOr::T(Schema::Object(object)) => Some((name, object)),
        _ => None,
    })
    .collect()
}

/// One object for all operations, since models' interfaces take no choice at the top of a schema. What it
/// cannot say, which field belongs to which operation, stands in the descriptions and is checked on arrival.
fn files() -> Tool {
    let mut about = "Looks at and changes the files of the session's private copy of the project.".to_owned();
    let mut names = Vec::new();
    let mut fields: Map<String, Value> = Map::new();
    for (name, object) in operations() {
        about.push_str(&format!(
            "\n- {name}: {}",
            one_line(object.description.as_deref().unwrap_or_default())
        ));
        names.push(name);
        for (field, schema) in object.properties {
            let needed = if object.required.contains(&field) { ", required" } else { "" };
            let schema = serde_json::to_value(schema).unwrap_or_default();
            let said = schema["description"].as_str().map(one_line).unwrap_or_default();
            let said = format!("{name}{needed}: {said}");
            match fields.get_mut(&field) {
                None => {
                    let mut schema = schema;
                    schema["description"] = said.into();
                    fields.insert(field, schema);
                }
                Some(known) => {
                    let before = known["description"].as_str().unwrap_or_default();
                    known["description"] = format!("{before} {said}").into();
                }
            }
        }
    }
    fields.insert("operation".to_owned(), json!({"type": "string", "enum": names}));
    let input_schema = json!({
        "type": "object",
        "properties": fields,
        "required": ["operation"],
        "additionalProperties": false,
    });
    Tool { name: NAME.to_owned(), description: about, input_schema }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl PartialSchema for Request {
    fn schema() -> RefOr<Schema> {
        let mut all = OneOfBuilder::new();
        for (name, mut object) in operations() {
            let tag = utoipa::openapi::schema::ObjectBuilder::new()
                .schema_type(utoipa::openapi::schema::Type::String)
                .enum_values(Some([name]));
            object.properties.insert("operation".to_owned(), tag.build().into());
            object.required.push("operation".to_owned());
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            all = all.item(object);
        }
        Schema::OneOf(all.build()).into()
    }
}

impl ToSchema for Request {
    fn name() -> std::borrow::Cow<'static, str> {
        "FilesRequest".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that fits a property's schema.
    fn example(schema: &Value) -> Value {
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds[0].as_str().unwrap(),
            kind => kind.as_str().unwrap_or_else(|| panic!("{schema}")),
        };
        match kind {
            "string" => "x".into(),
            "integer" => 1.into(),
            "boolean" => true.into(),
            "array" => Value::Array(vec![example(&schema["items"])]),
            "object" => {
                assert_eq!(schema["additionalProperties"], false, "{schema}");
                let fields = schema["properties"].as_object().unwrap();
                fields
                    .iter()
                    .map(|(name, field)| (name.clone(), example(field)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            other => panic!("{other}"),
        }
    }

    fn takes(value: &Value) -> bool {
        Request::parse(&serde_json::to_vec(value).unwrap()).is_ok()
    }

    #[test]
    fn ft1_the_schema_has_exactly_the_fields_that_the_types_take() {
        for (name, object) in operations() {
            let schema = serde_json::to_value(&object).unwrap();
            let mut full = example(&schema);
            full["operation"] = name.into();
            assert!(takes(&full), "{full}");
            full["other"] = 1.into();
            assert!(!takes(&full), "{full}");
            full.as_object_mut().unwrap().remove("other");
            for field in schema["properties"].as_object().unwrap().keys() {
                let mut without = full.clone();
                without.as_object_mut().unwrap().remove(field);
                assert_eq!(takes(&without), !object.required.contains(field), "{name} {field}");
                // A field that may be null says so, and the others refuse or ignore it as absent.
                let mut null = full.clone();
                null[field] = Value::Null;
                assert_eq!(takes(&null), !object.required.contains(field), "{name} {field}");
            }
        }
        let patch = serde_json::to_value(&operations()[4].1).unwrap();
        let file = &patch["properties"]["files"]["items"];
        for (field, nullable) in
            [("expected_hash", true), ("content", true), ("path", false), ("edits", false)]
        {
            let kinds = &file["properties"][field]["type"];
            assert_eq!(kinds == &json!(["string", "null"]), nullable, "{field} {kinds}");
        }
        let mut required: Vec<_> = file["required"].as_array().unwrap().clone();
        required.sort_by_key(Value::to_string);
        assert_eq!(required, ["expected_hash", "path"]);
    }

    #[test]
    fn ft1_a_model_gets_one_object_without_references_and_every_field_once() {
        let tool = &tools().tools[0];
        let schema = &tool.input_schema;
        assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
        let text = schema.to_string();
        assert!(!text.contains("$ref") && schema.get("oneOf").is_none(), "{text}");
        let fields = schema["properties"].as_object().unwrap();
        for (name, object) in operations() {
            assert!(tool.description.contains(&format!("\n- {name}: ")), "{}", tool.description);
            for (field, own) in &object.properties {
                let own = serde_json::to_value(own).unwrap();
                assert_eq!(fields[field]["type"], own["type"], "{name} {field}");
                assert!(fields[field]["description"].as_str().unwrap().contains(name), "{field}");
            }
        }
        let mut own: Vec<_> = fields.keys().map(String::as_str).collect();
        own.sort_unstable();
        let known =
            ["column", "cursor", "files", "limit", "line", "lines", "operation", "path", "revision", "text"];
        assert_eq!(own, known);
    }
}
