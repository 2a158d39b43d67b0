"""Windows: window classes, assigners, triggers, evictors and window operators."""
