//! Tokens of places where code and packages live.

use super::{Detector, random, token};
use crate::redact::shape::Class;

pub(super) const ALL: &[Detector] = &[
    token("github-token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], Class::Alnum, 36..256),
    token("github-token", &["github_pat_"], Class::Word, 59..256),
    token(
        "gitlab-token",
        &["glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"],
        Class::Dashed,
        20..256,
    ),
    token("bitbucket-token", &["ATBB"], Class::Alnum, 28..33),
    token("npm-token", &["npm_"], Class::Alnum, 36..37),
    token("pypi-token", &["pypi-AgE"], Class::Dashed, 50..512),
    token("rubygems-key", &["rubygems_"], Class::Hex, 48..49),
    token("docker-token", &["dckr_pat_", "dckr_oat_"], Class::Dashed, 27..64),
    token("sourcegraph-token", &["sgp_"], Class::Word, 40..90),
    token("jetbrains-token", &["perm:", "perm-"], Class::Base64, 60..400),
    token("atlassian-token", &["ATATT3"], Class::Base64, 60..300),
    token("postman-key", &["PMAK-"], Class::Dashed, 59..60),
    random("linear-key", &["lin_api_", "lin_oauth_"], Class::Alnum, 32..70),
];
