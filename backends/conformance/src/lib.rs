//! The table of op cases that every backend is tested, benched and queried with.
