//! Whether a state has an object already.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::source::regular;

/// The attributes that may have an import ID.
const IDENTIFYING: [&str; 5] = ["id", "arn", "name", "bucket", "self_link"];

/// The version of the format since terraform 0.12.
const VERSION: u64 = 4;

/// A state, as far as it says which objects it has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Objects {
    version: u64,
    pub(super) lineage: String,
    pub(super) serial: u64,
    resources: Vec<Resource>,
    /// Tofu can encrypt a state.
    encrypted_data: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resource {
    module: String,
    mode: String,
    r#type: String,
    name: String,
    instances: Vec<Instance>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Instance {
    index_key: Option<Value>,
    attributes: Attributes,
}

/// The texts of the identifying attributes.
#[derive(Debug, Default)]
struct Attributes(Vec<(String, String)>);

impl Objects {
    /// Reads a state. Without any byte there is none.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::new(regular::open(path)?);
        if file.fill_buf()?.is_empty() {
            return Ok(Self::default());
        }
        let state = serde_json::from_reader::<_, Self>(file)?;
        if state.encrypted_data.is_some() || state.version != VERSION {
            return Err(io::Error::other("its format is not one that can be searched"));
        }
        Ok(state)
    }

    /// Whether an object of this type, or of any type where the ID is a path or an ARN, has this ID. Case does not count,
    /// because some services ignore it.
    pub(super) fn has(&self, kind: &str, id: &str) -> bool {
        let is_global = id.contains(['/', ':']);
        let managed = self.resources.iter().filter(|resource| resource.mode == "managed");
        let may_be = managed.filter(|resource| is_global || base(&resource.r#type) == base(kind));
        let mut attributes = may_be
            .flat_map(|resource| &resource.instances)
            .flat_map(|instance| &instance.attributes.0);
        attributes.any(|(_, value)| {
            value.eq_ignore_ascii_case(id)
                || is_global
                    && value
                        .to_ascii_lowercase()
                        .ends_with(&format!("/{}", id.to_ascii_lowercase()))
        })
    }

    /// Whether the state has an object at this address, or may have.
    pub(super) fn may_have_at(&self, address: &str) -> bool {
        self.by_address(str::to_owned).may_have(address)
    }

    /// The objects by their addresses, after a function of these.
    pub(super) fn by_address(&self, written: impl Fn(&str) -> String) -> ByAddress<'_> {
        let mut found = ByAddress::default();
        for (resource, index, instance) in self.instances() {
            if is_quoted(&index) {
                found.quoted.insert(written(&resource));
            }
            let address = written(&format!("{resource}{index}"));
            found.objects.entry(address).or_default().push(instance);
        }
        found
    }

    /// Whether the state has this object at this address.
    pub(super) fn has_at(&self, address: &str, id: &str) -> bool {
        self.instances().any(|(resource, index, instance)| {
            let has_id = || instance.attributes.0.iter().any(|(_, value)| value == id);
            format!("{resource}{index}") == address || address.starts_with(&resource) && has_id()
        })
    }

    /// The objects, each with the address of its resource and its key in brackets.
    fn instances(&self) -> impl Iterator<Item = (String, String, &Instance)> {
        let managed = self.resources.iter().filter(|resource| resource.mode == "managed");
        managed.flat_map(|Resource { module, r#type, name, instances, .. }| {
            let dot = if module.is_empty() { "" } else { "." };
            instances.iter().map(move |instance| {
                let index = instance.index_key.as_ref().map(|key| format!("[{key}]"));
                (format!("{module}{dot}{type}.{name}"), index.unwrap_or_default(), instance)
            })
        })
    }
}

/// The objects of a state by their addresses. Deposed objects count.
#[derive(Debug, Default)]
pub(super) struct ByAddress<'s> {
    objects: HashMap<String, Vec<&'s Instance>>,
    /// Resources with keys that the tool may write in another way.
    quoted: HashSet<String>,
}

impl ByAddress<'_> {
    /// Whether the state has an object at this address, or may have.
    pub(super) fn may_have(&self, address: &str) -> bool {
        self.objects.contains_key(address) || self.may_be_quoted(address)
    }

    /// Whether the state has the object with this ID at this address, or may have.
    pub(super) fn has(&self, address: &str, id: &str) -> bool {
        let mut objects = self.objects.get(address).into_iter().flatten();
        objects.any(|object| object.attributes.0.iter().any(|(_, value)| value == id))
            || self.may_be_quoted(address)
    }

    fn may_be_quoted(&self, address: &str) -> bool {
        if !is_quoted(address) {
            return false;
        }
        let mut resources = address.match_indices('[').map(|(at, _)| &address[..at]);
        resources.any(|resource| self.quoted.contains(resource))
    }
}

/// Whether versions of the tool write this in different ways: other than JSON, they escape what cannot be printed and, since
/// 0.15, templates.
fn is_quoted(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ';
    !text.chars().all(is_plain) || ["\\", "${", "%{"].iter().any(|part| text.contains(part))
}

/// A type without the version of its API: `kubernetes_secret_v1` is another name of `kubernetes_secret`.
fn base(kind: &str) -> &str {
    match kind.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => kind,
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Names)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes by name")
    }

    fn visit_unit<E>(self) -> Result<Attributes, E> {
        Ok(Attributes::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !IDENTIFYING.contains(&&*name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<Box<RawValue>>()?;
            if let Ok(text) = serde_json::from_str::<String>(value.get()) {
                found.push((name, text));
            }
        }
        Ok(Attributes(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"{"version": 4, "serial": 3, "lineage": "l", "resources": [
            {"mode": "managed", "type": "aws_iam_role", "name": "a", "instances": [
                {"attributes": {"arn": "arn:aws:iam::1:role/x", "id": "x", "tags": {"id": "y"}}},
                {"deposed": "0a1b2c3d", "attributes": {"id": "old"}}]},
            {"mode": "data", "type": "aws_iam_role", "name": "d", "instances": [{"attributes": {"id": "read"}}]},
            {"mode": "managed", "type": "kubernetes_secret_v1", "name": "s", "instances": [{"attributes": {"id": "n/s"}}]},
            {"mode": "managed", "type": "google_compute_network", "name": "n", "instances": [
                {"attributes": null},
                {"attributes": {"id": 7, "self_link": "https://www.googleapis.com/compute/v1/projects/p/global/networks/n"}}]},
            {"mode": "managed", "type": "azurerm_subnet", "name": "s", "instances": [
                {"attributes": {"id": "/subscriptions/S/resourceGroups/G"}}]},
            {"module": "module.m[\"k\"]", "mode": "managed", "type": "a_b", "name": "c", "instances": [
                {"index_key": "l", "attributes": {"id": "i"}}, {"index_key": 0, "attributes": {"id": "j"}},
                {"index_key": "<m>", "attributes": {"id": "h"}}, {"index_key": "${x}", "attributes": {"id": "f"}}]},
            {"mode": "managed", "type": "a_b", "name": "d", "instances": [
                {"deposed": "0a1b2c3d", "attributes": {"id": "g"}}]}
        ]}"#;

    #[test]
    fn an_object_is_found_by_its_id_at_any_address() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        fs_err::write(&file, STATE).unwrap();
        let objects = Objects::read(&file).unwrap();
        assert_eq!((objects.serial, &*objects.lineage), (3, "l"));
        for (kind, id, has) in [
            ("aws_iam_role", "x", true),
            ("aws_iam_role", "old", true),
            ("aws_iam_role", "y", false),
            ("aws_iam_role", "read", false),
            ("aws_iam_user", "x", false),
            ("aws_iam_user", "arn:aws:iam::1:role/x", true),
            ("kubernetes_secret", "n/s", true),
            ("google_compute_network", "projects/p/global/networks/n", true),
            ("google_compute_network", "projects/p/global/networks/m", false),
            ("azurerm_subnet", "/subscriptions/s/resourcegroups/g", true),
            ("azurerm_other", "/subscriptions/S/resourceGroups/G", true),
        ] {
            assert_eq!(objects.has(kind, id), has, "{kind} {id}");
        }
        fs_err::write(&file, "").unwrap();
        assert!(!Objects::read(&file).unwrap().has("aws_iam_role", "x"));
        for other in [r#"{"version": 3}"#, r#"{"encrypted_data": "x", "version": 4}"#, "{", "[]"] {
            fs_err::write(&file, other).unwrap();
            assert!(Objects::read(&file).is_err(), "{other}");
        }
    }

    #[test]
    fn an_object_is_found_by_its_address() {
        let objects: Objects = serde_json::from_str(STATE).unwrap();
        for (address, id, has) in [
            ("aws_iam_role.a", "x", true),
            ("aws_iam_role.a", "other", true),
            ("aws_iam_role.b", "x", false),
            ("module.m[\"k\"].a_b.c[\"l\"]", "i", true),
            ("module.m[\"k\"].a_b.c[0]", "j", true),
            ("module.m[\"k\"].a_b.c[1]", "k", false),
            ("data.aws_iam_role.d", "read", false),
        ] {
            assert_eq!(objects.has_at(address, id), has, "{address} {id}");
        }
        for (address, may_have) in [
            ("aws_iam_role.a", true),
            ("aws_iam_role.b", false),
            ("a_b.d", true),
            ("a_b.c", false),
            ("module.m[\"k\"].a_b.c[\"l\"]", true),
            ("module.m[\"k\"].a_b.c[0]", true),
            ("module.m[\"k\"].a_b.c[\"<m>\"]", true),
            ("module.m[\"k\"].a_b.c[\"*.m\"]", false),
            ("module.m[\"k\"].a_b.c[\"$${x}\"]", true),
            ("module.m[\"k\"].a_b.c[\"$${y}\"]", true),
            ("module.m[\"k\"].a_b.c", false),
        ] {
            assert_eq!(objects.may_have_at(address), may_have, "{address}");
        }
        let masked = objects.by_address(|address| address.replace("iam_role", "***"));
        assert!(masked.may_have("aws_***.a") && !masked.may_have("aws_iam_role.a"));
        assert!(masked.has("aws_***.a", "x") && !masked.has("aws_***.a", "z"));
        assert!(masked.has("module.m[\"k\"].a_b.c[0]", "j"));
        assert!(!masked.has("module.m[\"k\"].a_b.c[0]", "z"));
        // The tool may write this key of the resource in another way.
        assert!(masked.has("module.m[\"k\"].a_b.c[\"$${x}\"]", "z"));
    }
}
