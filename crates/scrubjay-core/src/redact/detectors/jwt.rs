//! JSON Web Tokens: three parts of base64. The first begins with `{"`, encoded as `eyJ`.

use std::ops::Range;

use super::{Detector, Form};
use crate::redact::shape::{ByteClass, begins};

pub(super) const ALL: &[Detector] =
    &[Detector { name: "jwt", anchors: &["eyJ"], any_case: false, form: Form::Custom(jwt) }];

fn jwt(text: &[u8], at: usize) -> Option<Range<usize>> {
    if !begins(text, at) {
        return None;
    }
    let header = ByteClass::Dashed.run(text, at);
    let payload = ByteClass::Dashed.run(text, header + 1);
    let signed = text.get(header) == Some(&b'.') && text.get(payload) == Some(&b'.');
    if !signed || header - at < 10 || payload - header < 9 {
        return None;
    }
    // An encrypted token (JWE) has five parts.
    Some(at..ByteClass::Dotted.run(text, payload + 1))
}
