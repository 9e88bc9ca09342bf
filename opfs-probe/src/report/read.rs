//! Takes a report back in: `report --input`, and history.

use serde::Deserialize;

use super::model::{Report, SCHEMA};

/// Why a document is no report that this version can read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not JSON, or not an object.
    #[error("it is no JSON document of this kind: {0}")]
    NotJson(serde_json::Error),
    /// It says no schema.
    #[error("it has no \"schema\"; expected \"{SCHEMA}\"")]
    NoSchema,
    /// It is something else, or a report of another version.
    #[error("its schema is {0:?}; this version reads \"{SCHEMA}\"")]
    OtherSchema(String),
    /// It has the right schema and lacks what that asks for.
    #[error("it does not keep to its schema, \"{SCHEMA}\": {0}")]
    Malformed(serde_json::Error),
}

/// Reads a report. Fields it does not know are ignored.
pub fn from_json(document: &[u8]) -> Result<Report, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<serde_json::Value>,
    }
    let head: Head = serde_json::from_slice(document).map_err(ReadError::NotJson)?;
    match head.schema {
        Some(serde_json::Value::String(schema)) if schema == SCHEMA => {
            serde_json::from_slice(document).map_err(ReadError::Malformed)
        }
        Some(serde_json::Value::String(other)) => Err(ReadError::OtherSchema(other)),
        Some(other) => Err(ReadError::OtherSchema(other.to_string())),
        None => Err(ReadError::NoSchema),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{json, sample};

    #[test]
    fn what_was_written_is_read_back() {
        let report = sample::report();
        assert_eq!(from_json(json::render(&report).as_bytes()).unwrap(), report);
    }

    #[test]
    fn unknown_fields_and_words_are_no_error() {
        let mut document = serde_json::to_value(sample::report()).unwrap();
        document["later"] = 1.into();
        document["sessions"][0]["later"] = 1.into();
        document["sessions"][0]["total"]["processes"][0]["role"] = "oracle".into();
        let report = from_json(document.to_string().as_bytes()).unwrap();
        let process = &report.sessions[0].total.as_ref().unwrap().processes[0];
        assert_eq!(process.role, crate::report::model::Role::Other);
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let reason = |document: &str| from_json(document.as_bytes()).unwrap_err().to_string();
        assert_eq!(reason("oh"), "it is no JSON document of this kind: expected value at line 1 column 1");
        assert_eq!(reason("{}"), "it has no \"schema\"; expected \"opfs-probe.report/1\"");
        assert_eq!(
            reason(r#"{"schema": 1}"#),
            r#"its schema is "1"; this version reads "opfs-probe.report/1""#
        );
        assert_eq!(
            reason(r#"{"schema": "opfs-probe.report/2"}"#),
            r#"its schema is "opfs-probe.report/2"; this version reads "opfs-probe.report/1""#
        );
        assert_eq!(
            reason(r#"{"schema": "opfs-probe.report/1"}"#),
            r#"it does not keep to its schema, "opfs-probe.report/1": missing field `generated_at` at line 1 column 33"#
        );
    }
}
