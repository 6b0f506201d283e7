"""Build contexts: a recipe, or a folder with a Dockerfile, as the input of a container build."""
