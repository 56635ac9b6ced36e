//! Identifiers and counts, each its own type, so that a page cannot be passed for a row.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{}", self.0)
            }
        }
    };
}

id! {
    /// A token of the core's vocabulary.
    TokenId(u32)
}
id! {
    /// A request slot, below the core's `requests_max`.
    SlotId(u32)
}
id! {
    /// A physical KV page.
    PageId(u32)
}
id! {
    /// A continuation row; row 0 is the null row.
    RowId(u32)
}
id! {
    /// One admission of a request to a slot; never reused while a core is loaded, 0 means none.
    Epoch(u64)
}
id! {
    /// A request as the runtime counts them, from process start.
    RequestId(u64)
}
id! {
    /// Whom requests count for where they wait: the place of its key among the server's. Without keys everybody is client 0.
    ClientId(u32)
}
id! {
    /// A program submitted to the device, counted from load; 0 means none.
    StepId(u64)
}

id! {
    /// A snapshot row as the prefix cache counts them: snapshot 0 is the first row after the slots' rows.
    SnapshotId(u32)
}
id! {
    /// A copy between the device and the tiers; never reused while a core is loaded.
    TransferId(u64)
}

/// A SHA-256 that names what it was computed over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self}")
    }
}
