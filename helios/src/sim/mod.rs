//! A simulated device and seeded workloads for the scheduler's tests.
