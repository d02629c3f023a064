//! KV blocks: layout, pool, tables and plans.
