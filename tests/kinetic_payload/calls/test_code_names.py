"""Names that stand in annotations only, as text: who asks in a job for their meaning finds it."""


def test_annotations_mean_in_a_job_what_they_mean_here(project):
    project.copy("names_in_annotations")

    assert project.run("run.py").splitlines() == [
        "True <class '__main__.Shape'> True",
        "name 'Unpicklable' is not defined True False False True",
    ]


def test_a_package_that_only_annotations_name_may_be_missing_in_a_job(project):
    project.write("../outside/lib/frames.py", "class Frame: pass")
    project.write("../outside/lib/frames-1.dist-info/METADATA", "")
    project.write(
        "run.py",
        """
        from __future__ import annotations
        import typing
        import frames
        from frames import Frame
        from shipping import ship

        class Mine(Frame): pass

        def main(x: Frame, y: typing.Any, z: Mine) -> frames.Frame:
            try:
                return typing.get_type_hints(main)
            except NameError as error:
                return str(error)
        print(ship(main, 1, 2, 3))
        """,
    )

    printed = project.run("run.py", on_path=(project.outside / "lib",))

    assert printed == "name 'Frame' is not defined"
