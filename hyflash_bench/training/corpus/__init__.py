"""The text that drafters are trained on: token ids with roles, built by command and kept in one folder."""
