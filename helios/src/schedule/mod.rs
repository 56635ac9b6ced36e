//! Request lifecycle, admission and planning. Sans-IO: events and the time come in, plans go out.
