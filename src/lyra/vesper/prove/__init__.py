"""Proofs about nodes: each contract proved, refuted with an input that fails, or unknown with the reason.

`prover.prove(node)` is the entry. `walk` and `flow` go through the typed IR with symbolic values (`values`, `numbers`,
`typed_values`), shaped like the reference evaluator; `solve` asks z3 and replays each counterexample on the reference
evaluator; `candidates` has inputs that are tried without a solver. z3 is imported at the first proof only; it is the
extra `lyra-agents[prove]`. Whatever is not modelled is any value and any failure, so that a proof holds for all of it.
"""
