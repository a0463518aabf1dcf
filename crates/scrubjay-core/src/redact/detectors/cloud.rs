//! Keys of cloud providers.

use super::{Detector, random, token};
use crate::redact::shape::Class;

pub(super) const ALL: &[Detector] = &[
    token("aws-access-key", &["AKIA", "ASIA", "ABIA", "ACCA"], Class::Upper, 16..17),
    token("google-api-key", &["AIza"], Class::Dashed, 35..36),
    token("google-oauth-token", &["ya29."], Class::Dashed, 20..2048),
    token("google-oauth-secret", &["GOCSPX-"], Class::Dashed, 28..29),
    token("digitalocean-token", &["dop_v1_", "doo_v1_", "dor_v1_"], Class::Hex, 64..65),
    token("alibaba-access-key", &["LTAI"], Class::Alnum, 12..27),
    token("cloudflare-ca-key", &["v1.0-"], Class::Dashed, 100..200),
    token("terraform-token", &[".atlasv1."], Class::Dashed, 60..80),
    token("vault-token", &["hvs.", "hvb.", "hvr."], Class::Dashed, 24..300),
    token("doppler-token", &["dp.pt.", "dp.st.", "dp.ct.", "dp.sa."], Class::Alnum, 40..45),
    token("pulumi-token", &["pul-"], Class::Hex, 40..41),
    token("age-secret-key", &["AGE-SECRET-KEY-1"], Class::Upper, 58..59),
    token("fly-token", &["fo1_", "FlyV1 fm2_", "fm2_"], Class::Base64, 40..4096),
    token("databricks-token", &["dapi"], Class::Hex, 32..33),
    random("azure-storage-key", &["AccountKey=", "SharedAccessKey="], Class::Base64, 40..90),
    random("azure-sas-signature", &["&sig=", "?sig="], Class::Percent, 20..140),
];
