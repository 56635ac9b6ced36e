//! Pages, rows and (later) checkpoints: who owns them, who may reuse them. Sans-IO.
