"""The main job on embedded data: photos are captioned, then a captioner of drawn scenes is trained and scored."""
