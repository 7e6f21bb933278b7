//! The query of a request, typed.
//!
//! An empty value is missing, as upstream has it. A repeated parameter is refused, since a proxy or another
//! reader of the same query may take another of its values. What a missing parameter answers is said in [`crate::api::error`].

use std::any::type_name;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use url::form_urlencoded;

use crate::api::error::{ApiError, Cause, Route};
use crate::auth::{Access, Caller};

/// The parameters of a route, which its caller may use so; or the route's refusal.
pub(crate) struct Query<T>(pub(crate) T);

/// What a route takes in its query.
pub(crate) trait FromParams: Sized {
    /// Whose refusals a wrong query answers with.
    const ROUTE: Route;

    fn from_params(params: &Params) -> Result<Self, Cause>;

    /// What the request is about to do, with the names that the storage will be asked for.
    fn access(&self) -> Access<'_>;
}

/// Text by name.
#[derive(Default)]
pub(crate) struct Params<'a> {
    /// In their order: there are few, and each is looked up once.
    given: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// What is asked for, where somebody wants to know.
    asked: Option<RefCell<Vec<Asked>>>,
}

/// A parameter that a route asks for.
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    /// Of the type that parses it.
    pub(crate) type_name: &'static str,
}

/// Some of these is a value of every type that parses a parameter.
const EXAMPLES: [&str; 3] =
    ["1", "json", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"];

impl<'a> Params<'a> {
    pub(crate) fn parse(query: &'a str) -> Self {
        Self { given: form_urlencoded::parse(query.as_bytes()).collect(), asked: None }
    }

    /// Every parameter that `T` looks at, in its order.
    pub(crate) fn asked_by<T: FromParams>() -> Vec<Asked> {
        let params = Self { asked: Some(RefCell::default()), ..Self::default() };
        // Whatever comes of it: it has asked.
        drop(T::from_params(&params));
        params.asked.map(RefCell::into_inner).unwrap_or_default()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let (_, text) = self.given.iter().find(|(given, _)| given == name)?;
        Some(&**text).filter(|text| !text.is_empty())
    }

    /// Refuses a parameter that is given more than once.
    pub(crate) fn single(&self, parameter: &'static str) -> Result<(), Cause> {
        let given = self.given.iter().filter(|(given, _)| given == parameter).count();
        if given > 1 {
            let reason = "is given more than once".to_owned();
            return Err(Cause::Parameter { parameter, reason });
        }
        Ok(())
    }

    pub(crate) fn optional<T>(&self, parameter: &'static str) -> Result<Option<T>, Cause>
    where
        T: FromStr<Err: Display>,
    {
        if let Some(example) = self.note(parameter, false) {
            return Ok(Some(example));
        }
        self.single(parameter)?;
        let invalid = |reason: String| Cause::Parameter { parameter, reason };
        let Some(text) = self.text(parameter) else { return Ok(None) };
        // Bytes that are no UTF-8 have been replaced by this: two names must not become one.
        if text.contains(char::REPLACEMENT_CHARACTER) {
            return Err(invalid("is not UTF-8".to_owned()));
        }
        text.parse().map(Some).map_err(|error: T::Err| invalid(error.to_string()))
    }

    pub(crate) fn required<T>(&self, parameter: &'static str) -> Result<T, Cause>
    where
        T: FromStr<Err: Display>,
    {
        if let Some(example) = self.note(parameter, true) {
            return Ok(example);
        }
        self.optional(parameter)?.ok_or(Cause::Missing(parameter))
    }

    /// Notes what is asked for, and gives an example of it; but does neither as a rule.
    fn note<T: FromStr>(&self, name: &'static str, required: bool) -> Option<T> {
        let mut asked = self.asked.as_ref()?.borrow_mut();
        asked.push(Asked { name, required, type_name: type_name::<T>() });
        EXAMPLES.iter().find_map(|example| example.parse().ok())
    }
}

impl<S: Sync, T: FromParams> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let params = Params::parse(parts.uri.query().unwrap_or_default());
        let query = T::from_params(&params).map_err(T::ROUTE.error())?;
        // Without a caller nobody was asked who it is: there is no such route.
        match parts.extensions.get::<Caller>() {
            Some(caller) if caller.may(query.access()) => Ok(Self(query)),
            Some(caller) => Err(T::ROUTE.error()(Cause::Forbidden(caller.denial(query.access())))),
            None => Err(T::ROUTE.error()(Cause::Forbidden("this route has no caller".to_owned()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use datastore_api::Name;

    use super::*;

    fn name(query: &str) -> Result<Option<Name>, Cause> {
        Params::parse(query).optional("name")
    }

    #[test]
    fn a_repeated_parameter_is_refused_and_an_empty_one_is_missing() {
        let text = |query| name(query).unwrap().map(|name| name.to_string());
        assert_eq!(text("a=b&name=x+y%23&a=c").as_deref(), Some("x y#"));
        for query in ["name=x&name=x", "name=x&n%61me=z", "name=&name=z", "name=x&name"] {
            assert!(
                matches!(name(query), Err(Cause::Parameter { parameter: "name", .. })),
                "{query}"
            );
        }
        assert_eq!(text("name="), None);
        assert_eq!(text("name"), None);
        assert_eq!(text(""), None);
        assert!(matches!(Params::parse("").required::<Name>("name"), Err(Cause::Missing("name"))));
    }

    #[test]
    fn bytes_that_are_no_text_are_no_name() {
        for query in ["name=%ff", "name=a%C3", "name=..", "name=a%2Fb", "name=a%00"] {
            assert!(matches!(name(query), Err(Cause::Parameter { .. })), "{query}");
        }
    }
}
