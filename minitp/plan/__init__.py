"""Models of machines we don't have: what a run would cost there. Every number made here is a model, never measured."""
