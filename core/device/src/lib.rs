//! What a backend must provide: the op list, programs, the arena planner and the Backend trait.
