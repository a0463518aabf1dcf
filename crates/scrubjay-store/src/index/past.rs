//! The calls of tapes, for analysis: of one tape, and of the same server's tapes before it.
