"""Archives of trees: zip files, written and extracted."""
