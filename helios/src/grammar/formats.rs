//! Formats of strings, and what llguidance's expressions for them let through.

/// How a format is enforced.
pub(super) enum Format {
    /// As llguidance has it.
    Plain,
    /// With patterns that the text must match too.
    Tightened(&'static [&'static str]),
    /// By a pattern in its place. It allows less than the standard where that bounds lengths of parts and of the whole: bounds
    /// of the whole would make an expression too complex.
    Replaced(&'static str),
}

/// 29 February is a day of leap years alone.
const DAY_EXISTS: &str = concat!(
    "^(?:(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29",
    "|[0-9]{4}-(?:0[13-9]|1[0-2])-|[0-9]{4}-02-(?:[01]|2[0-8]))"
);
/// A leap second is one only at the end of certain days.
const NO_LEAP_SECOND: &str = "^[^:]*:[0-5][0-9]:[0-5]";
/// Up to seven labels of up to 31 characters; two hyphens in a row are kept for encoded international names.
const HOST_NAME: &str = "^[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,15}(?:\\.[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,15}){0,6}$";
/// Up to three parts of up to 20 characters, at a host name of up to five labels.
const ADDRESS: &str = concat!(
    "^[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}(?:\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}){0,2}",
    "@[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,15}(?:\\.[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,15}){0,4}$"
);

/// The format of that name, if it is enforced.
pub(super) fn format(name: &str) -> Option<Format> {
    Some(match name {
        "date" => Format::Tightened(&[DAY_EXISTS]),
        "time" => Format::Tightened(&[NO_LEAP_SECOND]),
        "date-time" => Format::Tightened(&[DAY_EXISTS, NO_LEAP_SECOND]),
        "hostname" => Format::Replaced(HOST_NAME),
        "email" => Format::Replaced(ADDRESS),
        "duration" | "ipv4" | "ipv6" | "uri" | "uuid" => Format::Plain,
        _ => return None,
    })
}

/// The names of all of them, for messages.
pub(super) const NAMES: &str = "date, date-time, duration, email, hostname, ipv4, ipv6, time, uri and uuid";
