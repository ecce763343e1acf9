"""The reports in the admin."""

from django.contrib import admin

from .models import SourceReport, Total


@admin.register(SourceReport)
class SourceReportAdmin(admin.ModelAdmin):
    """Reports are read here, not written."""

    list_display = ["path", "lines", "functions", "classes", "size", "attempt", "reported_at"]
    search_fields = ["path", "sha256"]
    readonly_fields = [field.name for field in SourceReport._meta.fields]

    def has_add_permission(self, request: object) -> bool:
        """Only the task makes reports."""
        return False


@admin.register(Total)
class TotalAdmin(admin.ModelAdmin):
    """Totals are read here, not written."""

    list_display = ["path", "files", "lines", "written_at"]
    readonly_fields = [field.name for field in Total._meta.fields]

    def has_add_permission(self, request: object) -> bool:
        """Only the task writes totals."""
        return False
