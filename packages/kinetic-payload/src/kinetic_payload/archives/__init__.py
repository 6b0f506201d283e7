"""Archives of trees: written, and extracted again."""
