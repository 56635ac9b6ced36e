//! Physical budgets and load-time sizing of rows and pages.
